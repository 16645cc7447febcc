"""Values that one replica serves and another replica has removed: the remaining evidence when markers are gone.

A cleaner removes a key's last committed record only if a later record of the key exists (another value, or a
tombstone, which compaction also removes in the end), or if the record was aborted. So if the last record of a key on
one replica is a value, and another replica, whose log covers that offset, has no record of the key at or after that
offset, then the replica that still *has* the value missed a record or a marker. One replica without the value outweighs
any number of replicas with it, unless that replica was truncated, which looks the same. If any log was cleaned beyond
the shortest log end, the value may have been removed because of a record that other replicas have yet to copy; such a
value is not reported.

This applies only to partitions without a history of clients, which would show the truth directly.

Legal: a log that starts later, and a key that has a later record at or beyond the bound (a replica may have cleaned
because of that record, or have copied a cleaned log). Other checkers with better evidence report a value whose
transaction is known to be aborted (`aborted_to_committed`), a key with a later tombstone on any replica
(`tombstone_divergence`), and a key with a later record in an open transaction (`stuck_lso`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def undeleted_values(
    aborts: DataFrame, believed: DataFrame, written: DataFrame, replicas: DataFrame, later: DataFrame
) -> DataFrame:
    """Return REPLICA, key, offset and facts of each undeleted value, and a broker that removed it.

    The facts: ``transactional``, ``producer_id``, ``decided_by``, ``own_marker``, ``removed_by`` (the first of these
    brokers, preferably with an older value alive), ``older_there`` (the offset of that older value, else null).
    ``aborts``: `ABORTS`. ``believed``: every record of every replica that counts, up to the bound, with its belief.
    ``later``: PARTITION, key of every key with a record at or beyond the bound that a replica does not believe aborted.

    ``own_marker``: whether the deciding marker is certainly the transaction's own, as its producer epoch is the next
    one. From transactions v2 on, each end of a transaction increments the producer epoch. In v1 a marker has the epoch
    of the data, and so has the marker of the producer's next transaction (KIP-890).
    """
    records = colocated(believed.join(written.select(*PARTITION, "offset", "truth"), ["offset", *PARTITION]))
    facts = ("offset", "tombstone", "transactional", "producer_id", "producer_epoch", "decided_by", "decided_in_epoch")
    last_committed = f.when(f.col("belief") == "committed", f.struct(*facts, "truth"))
    here = records.groupBy("key", *REPLICA).agg(
        f.max(last_committed).alias("last"),
        f.expr("max(if(belief = 'aborted' AND truth <=> 'aborted', NULL, offset))").alias("reaches"),
        f.expr("max(if(belief = 'open', offset, NULL))").alias("open_at"),
    )
    decided = here.where("open_at IS NULL OR open_at < last.offset").join(later, ["key", *PARTITION], "left_anti")
    alive = decided.where("NOT last.tombstone AND NOT last.truth <=> 'aborted'")
    deleted = (
        written.where("truth = 'committed' AND tombstone")
        .groupBy("key", *PARTITION)
        .agg(f.max("offset").alias("deleted_at"))
    )
    others = replicas.where("nothing_beyond").selectExpr(*PARTITION, "broker AS removed_by", "log_start")
    there = here.selectExpr(*PARTITION, "broker AS removed_by", "key", "last AS last_there", "reaches")
    return (
        colocated(alive.select(*REPLICA, "key", "last").join(others, PARTITION))
        .join(deleted, ["key", *PARTITION], "left")
        .where("deleted_at IS NULL OR deleted_at < last.offset")
        .where("log_start <= last.offset")
        # Each replica is also joined with itself, which reaches the offset of the value.
        .join(there, ["removed_by", "key", *PARTITION], "left")
        .where("reaches IS NULL OR reaches < last.offset")
        .join(colocated(_aborted_by_index(aborts, alive)), ["key", "removed_by", *REPLICA], "left_anti")
        .withColumn("older_there", f.expr("if(last_there.tombstone, NULL, last_there.offset)"))
        .groupBy("key", *REPLICA)
        .agg(
            f.first("last").alias("last"),
            f.expr("min(struct(older_there IS NULL, removed_by, older_there))").alias("remover"),
        )
        .select(*REPLICA, "key", *(f"last.{name}" for name in facts), "remover.removed_by", "remover.older_there")
        .withColumn("own_marker", f.expr("coalesce(decided_in_epoch = producer_epoch + 1, false)"))
        .drop("tombstone")
    )


def _aborted_by_index(aborts: DataFrame, alive: DataFrame) -> DataFrame:
    """Return REPLICA, key, ``removed_by``: values whose transaction the ``.txnindex`` of ``removed_by`` lists.

    The removal of such a value does not show which replica is wrong: a marker shows which outcome is right. A value
    that has lost its transactional bit does not count (see `aborted_to_committed`).
    """
    spans = aborts.selectExpr(*PARTITION, "broker AS removed_by", "producer_id", "first_offset", "last_offset")
    values = alive.where("last.transactional").selectExpr(*REPLICA, "key", "last.offset AS at", "last.producer_id")
    return (
        colocated(values.join(spans, ["producer_id", *PARTITION]))
        .where("at BETWEEN first_offset AND last_offset")
        .select(*REPLICA, "key", "removed_by")
    )
