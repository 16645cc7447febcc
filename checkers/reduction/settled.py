"""Copies of any size, and which of their partitions leave nothing to be found.

All is read once, checksums computed (`scan`). Let go are partitions that leave no doubt (`plain`) and have the same
batches on every replica, or the same final state of every key (`sieve`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from checkers.evidence.files import NO_BOUNDS, segment_files, shares
from checkers.evidence.tables import PARTITION, REPLICA, place_of
from checkers.reduction.plain import look
from checkers.reduction.scan import scan
from checkers.reduction.sieve import TASK_BYTES, buckets_of, sieve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from checkers.evidence.files import SegmentFile
    from checkers.evidence.tables import Place
    from harness.brokers.copies.copies import Copies

Facts: TypeAlias = "dict[tuple[str, str, int, int], dict[str, int | None]]"
"""What is known beside each log (`copies.replica_facts`), by REPLICA."""


@dataclass(frozen=True)
class Settled:
    """Partitions in which nothing can be found, and what is to be said of their ``replicas``, as `judged.Judged`."""

    places: set[Place]
    replicas: list[dict[str, Any]]


def settle(spark: SparkSession, copies: Sequence[Copies], facts: Facts, tasks: int) -> Settled:
    """Read all copies, whose facts are known, and tell which partitions are let go. ``tasks``: how many compare."""
    if not copies:
        return Settled(set(), [])
    segments = segment_files(copies, {replica: {**told, **NO_BOUNDS} for replica, told in facts.items()})
    files: dict[Place, list[int]] = {}
    for number, segment in enumerate(segments):
        files.setdefault(segment.place, []).append(number)
    stretches = scan(spark, segments).repartition(tasks, *PARTITION)
    looks = look(stretches, _by_place(copies), files).localCheckpoint(eager=False)
    plain = {place_of(row): row for row in looks.where("plain").drop("told").collect()}
    bounds = _bounds(plain, facts)
    differing = {place for place, row in plain.items() if not row["same"]}
    if differing:
        bounded = [
            replace(segment, bound=bounds[segment.place], shortest=plain[segment.place]["log_end"])
            if segment.place in differing
            else segment
            for segment in segments
        ]
        differing = _through(looks, bounded, tasks)
    places = set(plain) - differing
    return Settled(places, [
        {
            **dict(zip(REPLICA, replica, strict=True)), **told, "bound": bounds[replica[:3]], "whole_beyond": True,
            "log_end": plain[replica[:3]]["log_end"], "stable_end": plain[replica[:3]]["log_end"],
        }
        for replica, told in facts.items()
        if replica[:3] in places
    ])  # fmt: skip


def _by_place(copies: Sequence[Copies]) -> dict[Place, Copies]:
    """Return the replicas of each partition."""
    places: dict[Place, Copies] = {}
    for one in copies:
        for copy in one.replicas:
            known = places.setdefault((one.run_id, *copy.place), replace(one, replicas=()))
            places[one.run_id, *copy.place] = replace(known, replicas=(*known.replicas, copy))
    return places


def _bounds(plain: Mapping[Place, Row], facts: Facts) -> dict[Place, int]:
    """Return up to where each partition can be compared: its log end, or the highest high watermark if it is less."""
    highest: dict[Place, int] = {}
    for replica, told in facts.items():
        if (offset := told["high_watermark"]) is not None:
            highest[replica[:3]] = max(offset, highest.get(replica[:3], 0))
    return {place: min(row["log_end"], highest.get(place, row["log_end"])) for place, row in plain.items()}


def _through(looks: DataFrame, segments: Sequence[SegmentFile], tasks: int) -> set[Place]:
    """Return the partitions with a key that may differ."""
    beliefs = looks.where("segment IS NOT NULL").select("segment", "told")
    readers = len(shares(segments, TASK_BYTES))
    keys = sieve(beliefs.repartition(readers, "segment"), segments, buckets_of(segments), tasks)
    return {place_of(row) for row in keys.select(*PARTITION).distinct().collect()}
