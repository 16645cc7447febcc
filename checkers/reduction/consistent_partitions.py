"""The fast path: the partitions of copies of any size in which no checker can find anything.

All files are read once, and checksums are computed. A partition is consistent if every log ends at the same offset, if
no log has an unreplicated tail, if its spans are consistent (`consistent_spans`), and if no transaction is open. Then
no transaction can be misjudged, and only records must be compared, unless the data batches are the same. A consistent
partition is cleared if it has the same batches, or the same final state of every key (`candidate_keys`), on every
replica. The checkers judge every other partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import FLAG, INT, LONG, TEXT, table
from checkers.evidence.tables import PARTITION, PLACE, REPLICA_PLACE, RunPartition, place_of
from checkers.reduction.candidate_keys import candidate_keys
from checkers.reduction.consistent_spans import SortedSpans
from checkers.reduction.packed_spans import EPOCH, FILE, PACKED_SPANS, SPAN, arrays, packed_spans
from checkers.reduction.segments import replica_segments

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import SparkSession

    from harness.broker_files.copies.copies import Copies

    Array = npt.NDArray[Any]

Facts: TypeAlias = "dict[tuple[str, str, int, int], dict[str, int | None]]"
"""The offsets in checkpoints (`copies.replica_facts`), by `REPLICA_PLACE`."""

CONTRADICTION: Final = "the logs, or their indexes, contradict each other"

CONSISTENT = table(
    run=TEXT, topic=TEXT, partition=INT, same=FLAG, log_end=LONG, records=LONG, segment=INT, beliefs=t.BinaryType()
)  # fmt: skip
"""A row for each consistent partition; ``same``: the data batches are the same on every replica. ``records``: of all
replicas. A row for each file with beliefs that its chunks do not give: ``segment`` and ``beliefs``."""


def cleared_partitions(
    spark: SparkSession, copies: Sequence[Copies], facts: Facts, tasks: int
) -> tuple[set[RunPartition], list[dict[str, Any]]]:
    """Return the partitions that are cleared, and their replicas, as in `judged.Judged`.

    ``tasks``: the number of Spark tasks that compare.
    """
    if not copies:
        return set(), []
    segments = replica_segments(copies, facts)
    brokers: dict[RunPartition, set[int]] = {}
    for segment in segments:
        brokers.setdefault(segment.place, set()).add(segment.broker)
    packed_schema, schema = to_arrow_schema(PACKED_SPANS), to_arrow_schema(CONSISTENT)

    def check_chunk(rows: pa.Table) -> pa.Table:
        if rows.column("chunk")[0].as_py() == FILE:
            return rows
        head = {name: rows.column(name)[0].as_py() for name in (*PLACE, "chunk")}
        return pa.Table.from_pylist([{**head, **row} for row in _chunk_rows(rows)], schema=packed_schema)

    def check_partition(rows: pa.Table) -> pa.Table:
        place: RunPartition = tuple(rows.column(name)[0].as_py() for name in PLACE)
        head = dict(zip(PLACE, place, strict=True))
        return pa.Table.from_pylist([{**head, **row} for row in _partition_rows(rows, brokers[place])], schema)

    chunks = packed_spans(spark, segments).repartition(tasks, *PARTITION, "chunk").groupBy(*PARTITION, "chunk")
    checked = chunks.applyInArrow(check_chunk, PACKED_SPANS).localCheckpoint(eager=False)
    by_partition = checked.where("beliefs IS NULL").repartition(tasks, *PARTITION).groupBy(*PARTITION)
    partitions = by_partition.applyInArrow(check_partition, CONSISTENT).localCheckpoint(eager=False)
    consistent = {place_of(row): row for row in partitions.where("same IS NOT NULL").drop("beliefs").collect()}
    ends = {place: row["log_end"] for place, row in consistent.items()}
    bounds = _bounds(ends, facts)
    differing = {place for place, row in consistent.items() if not row["same"]}
    if differing:
        bounded = [
            replace(segment, bound=bounds[segment.place], shortest=ends[segment.place])
            if segment.place in differing
            else segment
            for segment in segments
        ]
        records = {place: consistent[place]["records"] for place in differing}
        beliefs = checked.select("segment", "beliefs").unionAll(partitions.select("segment", "beliefs"))
        keys = candidate_keys(beliefs.where("beliefs IS NOT NULL"), bounded, records, tasks)
        differing = {place_of(row) for row in keys.select(*PARTITION).distinct().collect()}
    places = set(consistent) - differing
    return places, [
        {
            **dict(zip(REPLICA_PLACE, replica, strict=True)), **fields, "bound": bounds[replica[:3]],
            "log_end": ends[replica[:3]], "stable_end": ends[replica[:3]], "whole_beyond": True,
        }
        for replica, fields in facts.items()
        if replica[:3] in places
    ]  # fmt: skip


def _bounds(ends: Mapping[RunPartition, int], facts: Facts) -> dict[RunPartition, int]:
    """Return the bound of each partition: its log end, or the highest high watermark if that is lower."""
    highest: dict[RunPartition, int] = {}
    for replica, fields in facts.items():
        if (offset := fields["high_watermark"]) is not None:
            highest[replica[:3]] = max(offset, highest.get(replica[:3], 0))
    return {place: min(end, highest.get(place, end)) for place, end in ends.items()}


def _chunk_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the spans of a chunk that matter beyond it, and the beliefs about its data; or that it contradicts itself.

    The beliefs of data that is decided beyond the chunk are missing.
    """
    spans = SortedSpans.of(arrays(rows.column("spans"), SPAN))
    if spans.contradicting.size:
        return [{"problem": CONTRADICTION}]
    return [{"spans": spans.beyond_chunk().tobytes()}, *spans.beliefs(spans.is_data & ~spans.is_undecided)]


def _partition_rows(rows: pa.Table, brokers: set[int]) -> list[dict[str, Any]]:
    """Return the other columns of `CONSISTENT` for a partition, no row if it is not consistent."""
    if rows.column("problem").null_count < len(rows):
        return []
    files = [row for row in rows.drop_columns(["spans"]).to_pylist() if row["chunk"] == FILE]
    ends = {
        broker: max((row["log_end"] or 0 for row in files if row["broker"] == broker), default=0) for broker in brokers
    }
    log_end = ends[min(ends)]
    if set(ends.values()) != {log_end} or not log_end or _has_unreplicated_tail(files):
        return []
    spans = SortedSpans.of(arrays(rows.column("spans"), SPAN))
    if spans.contradicting.size or spans.has_open:
        return []
    digests = dict.fromkeys(brokers, 0)
    for row in files:
        digests[row["broker"]] ^= row["digest"]
    records = sum(row["records"] for row in files)
    return [
        {"same": len(set(digests.values())) == 1, "log_end": log_end, "records": records},
        *spans.beliefs(spans.is_data & ~spans.is_undecided),
    ]


def _has_unreplicated_tail(files: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any replica has a leader epoch after the start of a later one. See `unreplicated_tails`."""
    epochs = np.concatenate([np.frombuffer(row["epochs"], EPOCH) for row in files])
    epochs = epochs[np.argsort(epochs["epoch"], kind="stable")]
    # The lowest start of any later epoch.
    starts = np.minimum.accumulate(epochs["start"][::-1])[::-1]
    later = np.searchsorted(epochs["epoch"], epochs["epoch"], "right")
    return bool((epochs["end"] >= np.append(starts, np.iinfo(np.int64).max)[later]).any())
