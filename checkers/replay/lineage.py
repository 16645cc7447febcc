"""Tails that were never replicated: what a broker that comes back truncates before it follows (KIP-101, KIP-279).

Leader epochs rise along a log, and every replica of it has the same one at the same offset. Where one replica has an
epoch at or before an offset, and another one has a lower epoch *at* that offset, the latter was written by a leader
that had been deposed: its log agrees with the others up to there, and no further.

Where an epoch began, a replica's ``leader-epoch-checkpoint`` tells; where that is missing, its first batch of it,
which may have been cleaned away: then the tail seems to begin later than it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, held, in_one

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from checkers.evidence.tables import Evidence

NEVER = 2**63 - 1


def stale_tails(batches: DataFrame, epochs: DataFrame) -> DataFrame:
    """Return REPLICA, ``stale_from``: where the tail begins that each such replica would truncate.

    Takes REPLICA, ``base_offset``, ``last_offset`` and ``leader_epoch`` of all batches of one snapshot, or of all
    sequences of batches of one epoch, and `EPOCHS`.
    """
    noted = epochs.select(*PARTITION, "leader_epoch", "start_offset")
    starts = (
        batches.select(*PARTITION, "leader_epoch", f.col("base_offset").alias("start_offset"))
        .unionByName(noted)
        .groupBy(*PARTITION, f.col("leader_epoch").alias("newer_epoch"))
        .agg(f.min("start_offset").alias("start_offset"))
    )
    return (
        in_one(batches.select(*REPLICA, "base_offset", "last_offset", "leader_epoch").join(in_one(starts), PARTITION))
        .where("newer_epoch > leader_epoch AND start_offset <= last_offset")
        .groupBy(*REPLICA)
        .agg(f.min(f.greatest("start_offset", "base_offset")).alias("stale_from"))
    )


def without_stale_tails(evidence: Evidence) -> Evidence:
    """Return the evidence of copies without anything that lies in a stale tail or was noted when the log reached it."""
    tails = held(stale_tails(evidence.entries.where("first_in_batch"), evidence.epochs))
    return replace(
        side_files_before(evidence, tails), entries=_before(evidence.entries, tails, f.col("last_offset") + 1)
    )


def side_files_before(evidence: Evidence, tails: DataFrame) -> Evidence:
    """Return the evidence with what was noted of the logs before their stale tails; entries as they are."""
    return replace(
        evidence,
        aborts=_before(evidence.aborts, tails, f.col("last_offset") + 1),
        producers=_before(evidence.producers, tails, f.col("as_of")),
    )


def _before(table: DataFrame, tails: DataFrame, end: Column) -> DataFrame:
    is_before = end <= f.coalesce("stale_from", f.lit(NEVER))
    return held(
        in_one(table).join(tails, REPLICA, "left").where(f.coalesce(is_before, f.lit(True))).select(*table.columns)
    )
