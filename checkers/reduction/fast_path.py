"""The fast path: the partitions of copies of any size in which no checker can find anything.

All files are read once, and checksums are computed (`scan`). A partition is cleared if it is consistent
(`consistent_partitions`) and has the same batches, or the same final state of every key (`candidate_keys`), on every
replica.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from checkers.evidence.files import NO_BOUNDS, segment_files, shares
from checkers.evidence.tables import PARTITION, REPLICA_PLACE, place_of
from checkers.reduction.candidate_keys import TASK_BYTES, buckets_of, candidate_keys
from checkers.reduction.consistent_partitions import consistent_partitions
from checkers.reduction.scan import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from checkers.evidence.files import SegmentFile
    from checkers.evidence.tables import Place
    from harness.broker_files.copies.copies import Copies

Facts: TypeAlias = "dict[tuple[str, str, int, int], dict[str, int | None]]"
"""The offsets in checkpoints (`copies.replica_facts`), by `REPLICA_PLACE`."""


@dataclass(frozen=True)
class Cleared:
    """Partitions in which no checker can find anything, and the rows of their ``replicas``, as in `judged.Judged`."""

    places: set[Place]
    replicas: list[dict[str, Any]]


def cleared_partitions(spark: SparkSession, copies: Sequence[Copies], facts: Facts, tasks: int) -> Cleared:
    """Read all copies, and return the partitions that are cleared. ``tasks``: the number of tasks that compare."""
    if not copies:
        return Cleared(set(), [])
    segments = segment_files(copies, {replica: {**fields, **NO_BOUNDS} for replica, fields in facts.items()})
    spans = scan(spark, segments).repartition(tasks, *PARTITION)
    partitions = consistent_partitions(spans, _by_place(copies)).localCheckpoint(eager=False)
    consistent = {place_of(row): row for row in partitions.where("consistent").drop("beliefs").collect()}
    bounds = _bounds(consistent, facts)
    differing = {place for place, row in consistent.items() if not row["same"]}
    if differing:
        bounded = [
            replace(segment, bound=bounds[segment.place], shortest=consistent[segment.place]["log_end"])
            if segment.place in differing
            else segment
            for segment in segments
        ]
        differing = _with_candidates(partitions, bounded, tasks)
    places = set(consistent) - differing
    return Cleared(places, [
        {
            **dict(zip(REPLICA_PLACE, replica, strict=True)), **fields, "bound": bounds[replica[:3]],
            "log_end": consistent[replica[:3]]["log_end"], "stable_end": consistent[replica[:3]]["log_end"],
            "whole_beyond": True,
        }
        for replica, fields in facts.items()
        if replica[:3] in places
    ])  # fmt: skip


def _by_place(copies: Sequence[Copies]) -> dict[Place, Copies]:
    """Return the replicas of each partition."""
    places: dict[Place, Copies] = {}
    for cluster in copies:
        for copy in cluster.replicas:
            partition = places.setdefault((cluster.run_id, *copy.place), replace(cluster, replicas=()))
            places[cluster.run_id, *copy.place] = replace(partition, replicas=(*partition.replicas, copy))
    return places


def _bounds(consistent: Mapping[Place, Row], facts: Facts) -> dict[Place, int]:
    """Return the bound of each partition: its log end, or the highest high watermark if that is lower."""
    highest: dict[Place, int] = {}
    for replica, fields in facts.items():
        if (offset := fields["high_watermark"]) is not None:
            highest[replica[:3]] = max(offset, highest.get(replica[:3], 0))
    return {place: min(row["log_end"], highest.get(place, row["log_end"])) for place, row in consistent.items()}


def _with_candidates(partitions: DataFrame, segments: Sequence[SegmentFile], tasks: int) -> set[Place]:
    """Return the partitions with a candidate key."""
    beliefs = partitions.where("segment IS NOT NULL").select("segment", "beliefs")
    readers = len(shares(segments, TASK_BYTES))
    keys = candidate_keys(beliefs.repartition(readers, "segment"), segments, buckets_of(segments), tasks)
    return {place_of(row) for row in keys.select(*PARTITION).distinct().collect()}
