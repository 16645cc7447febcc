"""The committed records that a replica hides as aborted, with the evidence for each record.

`committed_to_aborted` reports them; other checkers must not report their effects as another anomaly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.broker_files.segments.records import DATA
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Evidence


def hidden_records(evidence: Evidence, written: DataFrame, records: DataFrame, differing_keys: DataFrame) -> DataFrame:
    """Return REPLICA, offset, key, tombstone, producer_id, txn, ``abort_at``, ``source`` of every hidden record.

    One row per record and source (log, txnindex, held: see `committed_to_aborted`). ``abort_at`` is the offset of the
    ABORT that the replica applied to the transaction, null if that offset is unknown.
    """
    committed = written.where((f.col("truth") == COMMITTED) & f.col("transactional"))
    facts = committed.select(*PARTITION, "offset", "key", "tombstone", "producer_id", "txn")
    by_log = (
        records.where(f.col("belief") == ABORTED)
        .select(*REPLICA, "offset", f.col("decided_by").alias("abort_at"), f.lit("log").alias("source"))
        .join(facts, ["offset", *PARTITION])
    )
    by_index = (
        evidence.aborts.where(f.col("snapshot") == AFTER_REJOIN)
        .select(
            *REPLICA,
            "producer_id",
            "first_offset",
            f.col("last_offset").alias("abort_at"),
            f.lit("txnindex").alias("source"),
        )
        .join(facts, ["producer_id", *PARTITION])
        .where("offset BETWEEN first_offset AND abort_at")
        .drop("first_offset")
    )
    if evidence.has_clients:
        by_index = by_index.join(_once_held(evidence), ["offset", *REPLICA], "left_semi")
    return by_log.unionByName(by_index).unionByName(_undone_deletes(evidence, differing_keys, facts))


def _once_held(evidence: Evidence) -> DataFrame:
    """Return REPLICA, offset of every record that was ever seen on a replica: in its files, or by the observer.

    A record inside the range of an aborted transaction in the replica's ``.txnindex`` may never have been on that
    replica: while its broker was down, other replicas removed the record and a marker, so that two transactions of a
    producer became one on this replica.
    """
    appeared = evidence.appeared.where(f.col("kind").isin(*DATA)).select(*REPLICA, "offset")
    stored = evidence.entries.select(*REPLICA, "offset")
    return colocated(appeared.unionByName(stored))


def _undone_deletes(evidence: Evidence, differing_keys: DataFrame, facts: DataFrame) -> DataFrame:
    """Return the committed tombstones that a replica removed after the return while the older value is alive."""
    held_before = evidence.before_return.select(*REPLICA, "offset")
    held_now = evidence.final.select(*REPLICA, "offset")
    alive = differing_keys.where("true_tombstone AND here_offset < true_offset").select(
        *REPLICA, f.col("true_offset").alias("offset")
    )
    return (
        alive.join(held_before, ["offset", *REPLICA], "left_semi")
        .join(held_now, ["offset", *REPLICA], "left_anti")
        .join(facts, ["offset", *PARTITION])
        .withColumns({"abort_at": f.lit(None).cast("long"), "source": f.lit("held")})
    )
