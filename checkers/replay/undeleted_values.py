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
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN, own_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def undeleted_values(
    aborts: DataFrame, believed: DataFrame, written: DataFrame, replicas: DataFrame, later: DataFrame
) -> DataFrame:
    """Return REPLICA, key, offset and facts of each undeleted value, and a broker that removed it.

    The facts: ``transactional``, ``producer_id``, ``decided_by``, ``own_marker`` (from `batch_outcomes.own_marker`),
    ``removed_by`` (the first broker where an older value is alive, else the first one), ``older_there`` (the offset of
    that older value, else null). ``aborts``: `ABORTS`. ``believed``: every record of every replica that counts, up to
    the bound, with its belief. ``later``: from `truth.later_keys`.
    """
    truths = written.select(*PARTITION, "offset", "truth")
    records = colocated(believed.join(truths, ["offset", *PARTITION])).withColumn(
        "counts", f.col("belief") == COMMITTED
    )
    surely_aborted = (f.col("belief") == ABORTED) & f.coalesce(f.col("truth") == ABORTED, f.lit(False))
    facts = ("offset", "tombstone", "transactional", "producer_id", "producer_epoch", "decided_by", "decided_in_epoch")
    last = f.max(f.when(f.col("counts"), f.struct(*facts, "truth")))
    here = records.groupBy("key", *REPLICA).agg(
        last.alias("last"),
        f.max(f.when(~surely_aborted, f.col("offset"))).alias("reaches"),
        f.max(f.when(f.col("belief") == OPEN, f.col("offset"))).alias("open_at"),
    )
    decided = here.where("open_at IS NULL OR open_at < last.offset").join(later, ["key", *PARTITION], "left_anti")
    alive = decided.where("NOT last.tombstone").where(~f.coalesce(f.col("last.truth") == ABORTED, f.lit(False)))
    deleted = (
        written.where((f.col("truth") == COMMITTED) & f.col("tombstone"))
        .groupBy("key", *PARTITION)
        .agg(f.max("offset").alias("deleted_at"))
    )
    others = replicas.where("nothing_beyond").select(*PARTITION, f.col("broker").alias("removed_by"), "log_start")
    there = here.select(
        *PARTITION, f.col("broker").alias("removed_by"), "key", f.col("last").alias("last_there"), "reaches"
    )
    return (
        colocated(alive.select(*REPLICA, "key", "last").join(others, PARTITION))
        .join(deleted, ["key", *PARTITION], "left")
        .where("deleted_at IS NULL OR deleted_at < last.offset")
        .where("log_start <= last.offset")
        # Each replica is also joined with itself, which reaches the offset of the value.
        .join(there, ["removed_by", "key", *PARTITION], "left")
        .where("reaches IS NULL OR reaches < last.offset")
        .join(colocated(_aborted_by_index(aborts, alive)), ["key", "removed_by", *REPLICA], "left_anti")
        .withColumn("older_there", f.when(~f.col("last_there.tombstone"), f.col("last_there.offset")))
        .groupBy("key", *REPLICA)
        .agg(
            f.first("last").alias("last"),
            f.min(f.struct(f.col("older_there").isNull(), "removed_by", "older_there")).alias("remover"),
        )
        .select(*REPLICA, "key", *(f"last.{name}" for name in facts), "remover.removed_by", "remover.older_there")
        .withColumn("own_marker", own_marker())
        .drop("tombstone")
    )


def _aborted_by_index(aborts: DataFrame, alive: DataFrame) -> DataFrame:
    """Return REPLICA, key, ``removed_by``: values whose transaction the ``.txnindex`` of ``removed_by`` lists.

    The removal of such a value does not show which replica is wrong: a marker shows which outcome is right. A value
    that has lost its transactional bit does not count (see `aborted_to_committed`).
    """
    spans = aborts.select(*PARTITION, f.col("broker").alias("removed_by"), "producer_id", "first_offset", "last_offset")
    values = alive.where("last.transactional").select(
        *REPLICA, "key", f.col("last.offset").alias("at"), "last.producer_id"
    )
    return (
        colocated(values.join(spans, ["producer_id", *PARTITION]))
        .where("at BETWEEN first_offset AND last_offset")
        .select(*REPLICA, "key", "removed_by")
    )
