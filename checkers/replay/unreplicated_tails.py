"""Tails of logs that were never replicated: a returning broker truncates its tail before it follows (KIP-101, KIP-279).

Leader epochs rise along a log, and all replicas have the same leader epoch at the same offset. If one replica has an
epoch at or before an offset, and another replica has a lower epoch *at* that offset, a deposed leader wrote the latter
record: the two logs agree up to that offset only.

The start offset of an epoch comes from a replica's ``leader-epoch-checkpoint``, else from the replica's first batch of
that epoch. If compaction has removed that batch, the tail seems to begin later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, Evidence, checkpointed, colocated
from checkers.replay.truth import UNBOUNDED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def unreplicated_tails(batches: DataFrame, epochs: DataFrame) -> DataFrame:
    """Return REPLICA, ``stale_from`` of each replica with an unreplicated tail: the first offset of that tail.

    ``batches``: REPLICA, ``base_offset``, ``last_offset`` and ``leader_epoch`` of all batches of one snapshot, or of
    all sequences of batches of one leader epoch. ``epochs``: `EPOCHS`.
    """
    checkpoints = epochs.select(*PARTITION, "leader_epoch", "start_offset")
    starts = (
        batches.select(*PARTITION, "leader_epoch", f.col("base_offset").alias("start_offset"))
        .unionByName(checkpoints)
        .groupBy(*PARTITION, f.col("leader_epoch").alias("newer_epoch"))
        .agg(f.min("start_offset").alias("start_offset"))
    )
    return (
        colocated(
            batches.select(*REPLICA, "base_offset", "last_offset", "leader_epoch").join(colocated(starts), PARTITION)
        )
        .where("newer_epoch > leader_epoch AND start_offset <= last_offset")
        .groupBy(*REPLICA)
        .agg(f.min(f.greatest("start_offset", "base_offset")).alias("stale_from"))
    )


def without_unreplicated_tails(evidence: Evidence) -> Evidence:
    """Return the evidence of copies without the entries of unreplicated tails, also in side files."""
    tails = checkpointed(unreplicated_tails(evidence.entries.where("first_in_batch"), evidence.epochs))
    return replace(
        side_files_before(evidence, tails), entries=_before(evidence.entries, tails, f.col("last_offset") + 1)
    )


def side_files_before(evidence: Evidence, tails: DataFrame) -> Evidence:
    """Return the evidence without the side file entries of unreplicated tails; ``entries`` do not change."""
    return replace(
        evidence,
        aborts=_before(evidence.aborts, tails, f.col("last_offset") + 1),
        producers=_before(evidence.producers, tails, f.col("as_of")),
    )


def _before(table: DataFrame, tails: DataFrame, end: Column) -> DataFrame:
    is_before = end <= f.coalesce("stale_from", f.lit(UNBOUNDED))
    return checkpointed(
        colocated(table).join(tails, REPLICA, "left").where(f.coalesce(is_before, f.lit(True))).select(*table.columns)
    )
