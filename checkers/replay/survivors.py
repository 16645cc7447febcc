"""Values that live on where another replica has removed them: the evidence that is left when markers are gone.

A cleaner removes a key's last committed record only for something later: another record of the key, a tombstone
(which goes too, in the end), or because the record was aborted. So where one replica ends with a value for a key,
and another one whose log covers that offset has nothing of the key at or after it, the one that still *holds* the
value missed something. That is not a vote: one replica without it outweighs any number that have it, unless that
one was truncated, which cannot be told from this. Where any log was cleaned beyond the shortest log end, the value may
have been removed for something that the others have yet to copy, and nothing is said.

Only for partitions whose clients are not known: a client tells directly what is right.

Legal, and not taken for this: a log that starts later, and a key that has a later record at or beyond the bound (a
replica may have cleaned by it, or have copied a log that was). Found by something better: a value whose transaction
is known to be aborted (`aborted_to_committed`), a key of which a later tombstone is still known
(`tombstone_divergence`), and one of which a later record is open here (`stuck_lso`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, in_one
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN, own_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def surviving_values(
    aborts: DataFrame, believed: DataFrame, known: DataFrame, replicas: DataFrame, later: DataFrame
) -> DataFrame:
    """Return REPLICA, key, offset and what is known of each value that lives on, with a broker that removed it.

    ``aborts``: `ABORTS`. ``believed``: every record of every replica from its log start to the bound, with its belief;
    ``later`` as `truth.later_keys` gives it. Adds ``transactional``, ``producer_id``, ``decided_by``, ``own_marker``
    (whether the deciding marker is surely the transaction's own), ``removed_by`` (the first broker where an older value
    is alive, else the first one), ``older_there`` (the offset of that value, else null).
    """
    compared = replicas.select(*REPLICA, "log_start", "nothing_beyond")
    truths = known.select(*PARTITION, "offset", "truth")
    records = in_one(believed.join(truths, [*PARTITION, "offset"])).withColumn("counts", f.col("belief") == COMMITTED)
    surely_aborted = (f.col("belief") == ABORTED) & f.coalesce(f.col("truth") == ABORTED, f.lit(False))
    facts = ("offset", "tombstone", "transactional", "producer_id", "producer_epoch", "decided_by", "decided_in_epoch")
    last = f.max(f.when(f.col("counts"), f.struct(*facts, "truth")))
    here = records.groupBy(*REPLICA, "key").agg(
        last.alias("last"),
        f.max(f.when(~surely_aborted, f.col("offset"))).alias("reaches"),
        f.max(f.when(f.col("belief") == OPEN, f.col("offset"))).alias("open_at"),
    )
    settled = here.where("open_at IS NULL OR open_at < last.offset").join(later, [*PARTITION, "key"], "left_anti")
    alive = settled.where("NOT last.tombstone").where(~f.coalesce(f.col("last.truth") == ABORTED, f.lit(False)))
    deleted = (
        known.where((f.col("truth") == COMMITTED) & f.col("tombstone"))
        .groupBy(*PARTITION, "key")
        .agg(f.max("offset").alias("deleted_at"))
    )
    others = compared.select(*PARTITION, f.col("broker").alias("removed_by"), "log_start", "nothing_beyond")
    there = here.select(
        *PARTITION, f.col("broker").alias("removed_by"), "key", f.col("last").alias("last_there"), "reaches"
    )
    return (
        in_one(alive.select(*REPLICA, "key", "last").join(others, PARTITION))
        .join(deleted, [*PARTITION, "key"], "left")
        .where("deleted_at IS NULL OR deleted_at < last.offset")
        .where("log_start <= last.offset")
        # A replica is its own other one, too: it reaches what it has.
        .join(there, [*PARTITION, "removed_by", "key"], "left")
        .where("reaches IS NULL OR reaches < last.offset")
        .join(in_one(_counted_aborted(aborts, alive)), [*REPLICA, "key", "removed_by"], "left_anti")
        .where("nothing_beyond")
        .withColumn("older_there", f.when(~f.col("last_there.tombstone"), f.col("last_there.offset")))
        .groupBy(*REPLICA, "key")
        .agg(
            f.first("last").alias("last"),
            f.min(f.struct(f.col("older_there").isNull(), "removed_by", "older_there")).alias("remover"),
        )
        .select(*REPLICA, "key", *(f"last.{name}" for name in facts), "remover.removed_by", "remover.older_there")
        .withColumn("own_marker", own_marker())
        .drop("tombstone")
    )


def _counted_aborted(aborts: DataFrame, alive: DataFrame) -> DataFrame:
    """Return REPLICA, key, ``removed_by``: values whose transaction that broker's own ``.txnindex`` counts as aborted.

    That it has removed such a one says nothing of who holds it: rightly aborted or not, a marker tells. Not so of one
    that has lost its transactional bit (see `aborted_to_committed`).
    """
    spans = aborts.select(*PARTITION, f.col("broker").alias("removed_by"), "producer_id", "first_offset", "last_offset")
    values = alive.where("last.transactional").select(
        *REPLICA, "key", f.col("last.offset").alias("at"), "last.producer_id"
    )
    return (
        in_one(values.join(spans, [*PARTITION, "producer_id"]))
        .where("at BETWEEN first_offset AND last_offset")
        .select(*REPLICA, "key", "removed_by")
    )
