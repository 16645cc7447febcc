"""Read segment files of any size: all their batches as producer spans, and some of their records.

A producer span is a sequence of batches of one producer and one producer epoch between two markers, in one segment. All
batches of a span have the same outcome. A log of many records has a few thousand spans; a digest of the batches'
checksums stands for the records. The checksums are computed, not only read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.parse import DISK, batch_rows
from checkers.evidence.schemas import ENTRIES, FLAG, INT, LONG, TEXT, table
from checkers.evidence.tables import PLACE, REPLICA, UNBOUNDED, RunPartition
from harness.broker_files.segments.batches import CONTROL, TRANSACTIONAL, CorruptLogError, until_cut
from harness.broker_files.segments.blocks import Block, iter_blocks
from harness.run_folder.store import AFTER_REJOIN
from harness.spark.stored_segment import STORED_SEGMENTS, is_stored

if TYPE_CHECKING:
    from harness.broker_files.copies.copies import Copies
    from harness.broker_files.segments.blocks import Batches

Flags = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Columns = dict[str, Array]
Reader = Callable[..., Iterator[pa.RecordBatch]]

BEFORE, COMPARED, REPLICATED, BEYOND = -1, 0, 1, 2
"""The region of a span: before the log start; below the bound; below the shortest log end; beyond."""

PRODUCER_SPANS = table(
    run=TEXT, broker=INT, topic=TEXT, partition=INT, segment=INT,
    producer_id=LONG, producer_epoch=INT, leader_epoch=INT,
    base_offset=LONG, last_offset=LONG, end_offset=LONG,
    transactional=FLAG, control=FLAG, marker=TEXT, region=INT,
    records=LONG, digest=LONG, first_in_batch=FLAG, problem=TEXT,
)  # fmt: skip
"""``segment`` is an index into the scanned files. ``last_offset`` is the last offset of the first batch, ``end_offset``
of the last batch; each control batch is a separate span. All producers outside transactions count as one, -1.
``digest`` does not depend on segment boundaries. ``first_in_batch`` is true: a span stands for a batch."""

TASK_BYTES: Final = 256 << 20
"""Bytes that a task reads: work for a tenth of a second, several times the time to start a task."""
_AT_ONCE = 1 << 16
_HEAD = 7
"""The number of columns of `ENTRIES` that follow from the path of a file."""
_FIRST_AT, _OFFSET_AT = (ENTRIES.names.index(name) - _HEAD for name in ("first_in_batch", "offset"))


@dataclass(frozen=True, kw_only=True)
class ReplicaSegment:
    """A segment of a replica. ``is_last``: whether it is the log's last one, which its broker may append to.

    ``txnindex``: the index of its aborted transactions. ``bound`` and ``shortest``: as in `truth.bounded`. Batches from
    ``log_end`` on were never replicated and are left out. Before these are computed, every batch is read and compared.
    """

    place: RunPartition
    broker: int
    path: Path
    txnindex: Path | None
    size_bytes: int
    is_last: bool
    base_offset: int
    log_start: int
    bound: int = UNBOUNDED
    shortest: int = UNBOUNDED
    log_end: int = UNBOUNDED

    @property
    def replica(self) -> dict[str, Any]:
        """The columns of `REPLICA`."""
        return {**dict(zip(PLACE, self.place, strict=True)), "broker": self.broker}


def replica_segments(
    copies: Sequence["Copies"], facts: Mapping[tuple[Any, ...], Mapping[str, Any]], bounds: Sequence[str] = ()
) -> list[ReplicaSegment]:
    """Return the segments of all replicas. ``facts``: log_start, and these ``bounds``, by `REPLICA_PLACE`."""
    return [
        ReplicaSegment(
            place=(cluster.run_id, *copy.place),
            broker=copy.broker,
            path=path,
            txnindex=None if segment.txnindex is None else copy.folder / segment.txnindex,
            size_bytes=path.stat().st_size,
            is_last=segment is copy.segments[-1],
            base_offset=segment.base_offset,
            **{name: facts[cluster.run_id, *copy.place, copy.broker][name] for name in ("log_start", *bounds)},
        )
        for cluster in copies
        for copy in cluster.replicas
        for segment, path in zip(copy.segments, copy.logs, strict=True)
    ]


def numbered(spark: SparkSession, segments: Sequence[ReplicaSegment]) -> DataFrame:
    """Return REPLICA, ``segment`` (an index) and ``file_offset`` (its base offset) of each segment, for a broadcast."""
    rows = [(*s.place, s.broker, number, s.base_offset) for number, s in enumerate(segments)]
    schema = "run string, topic string, partition int, broker int, segment int, file_offset long"
    return f.broadcast(spark.createDataFrame(rows, schema))


def shares(segments: Sequence[ReplicaSegment], task_bytes: int) -> list[list[int]]:
    """Distribute indexes of files over tasks of about ``task_bytes``, the biggest file first; no file is split."""
    tasks: list[list[int]] = []
    room = -1
    for index in sorted(range(len(segments)), key=lambda index: -segments[index].size_bytes):
        if room < segments[index].size_bytes:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(index)
        room -= segments[index].size_bytes
    return tasks


def rows_of_files(
    spark: SparkSession, segments: Sequence[ReplicaSegment], columns: t.StructType, read: Reader
) -> DataFrame:
    """Return the rows that ``read`` gives for each file and its index; a file is read only when a job runs."""
    if (stored := _stored(spark, segments)) is not None:
        return _read_each(stored, segments, columns, read)
    tasks = shares(segments, TASK_BYTES)
    schema = to_arrow_schema(columns)

    def part(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for index in tasks[number]:
                    yield from read(segments[index], index, schema)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(part, columns)


def read_segments(
    requests: DataFrame, segments: Sequence[ReplicaSegment], columns: t.StructType, read: Reader
) -> DataFrame:
    """Return the rows that ``read`` gives for each request: ``segment``, an index, and other columns.

    ``read`` gets the segment, its index, the values of the other columns, and the schema of the result.
    """
    stored = _stored(requests.sparkSession, segments)
    return _read_each(requests if stored is None else requests.join(stored, "segment"), segments, columns, read)


def _stored(spark: SparkSession, segments: Sequence[ReplicaSegment]) -> DataFrame | None:
    """Return ``segment``, an index, and ``data`` of the segments that executors store; None for files."""
    numbers = [(s.path.number, index) for index, s in enumerate(segments) if is_stored(s.path)]
    if not numbers:
        return None
    indexes = spark.createDataFrame(numbers, "number int, segment int")
    return spark.table(STORED_SEGMENTS).join(f.broadcast(indexes), "number").select("segment", "data")


def _read_each(rows: DataFrame, segments: Sequence[ReplicaSegment], columns: t.StructType, read: Reader) -> DataFrame:
    """Return the rows that ``read`` gives; the last column of the ``rows`` of stored segments is ``data``."""
    schema = to_arrow_schema(columns)

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                segment = segments[index]
                if is_stored(segment.path):
                    segment = replace(segment, path=segment.path.with_data(values.pop()))
                yield from read(segment, index, *values, schema)

    return rows.mapInArrow(part, columns)


def span_arrays(segment: ReplicaSegment) -> Iterator[Columns | str]:
    """Yield the spans of a file, and last the problem if the file is unreadable from some position on.

    Columns as in `PRODUCER_SPANS`; ``marker`` is an index into `columns.MARKER_NAMES`, or negative for none.
    """
    pending: list[Batches] = []
    count, skipped, problem = 0, 0, ""
    try:
        with segment.path.open("rb", buffering=0) as file:
            for block in iter_blocks(file, source=str(segment.path), is_last=segment.is_last):
                pending.append(block.batches[block.batches["last_offset"] < segment.log_end])
                count += len(pending[-1])
                skipped += len(block.skipped)
                if count >= _AT_ONCE:
                    yield _spans(segment, np.concatenate(pending))
                    pending, count = [], 0
    except CorruptLogError as error:
        problem = "" if error.cut and segment.is_last else str(error)
    except OSError as error:
        problem = str(error)
    if count:
        yield _spans(segment, np.concatenate(pending))
    if skipped:
        problem = problem or f"{segment.path}: {skipped} entries of magic 0 or 1 are not read"
    if problem:
        yield problem


def _spans(segment: ReplicaSegment, batches: "Batches") -> Columns:
    """Return the spans of batches; a span ends where a column differs, and before and after each control batch."""
    transactional: Flags = (batches["attributes"] & TRANSACTIONAL) != 0
    producers = np.where(transactional, batches["producer_id"], -1)
    order = np.argsort(producers, kind="stable")
    batches, transactional, producers = batches[order], transactional[order], producers[order]
    control: Flags = (batches["attributes"] & CONTROL) != 0
    epochs = np.where(transactional, batches["producer_epoch"], -1)
    base = batches["base_offset"]
    regions = (base >= segment.bound).astype(np.int32) + (base >= segment.shortest)
    regions = np.where(batches["last_offset"] < segment.log_start, BEFORE, regions).astype(np.int32)
    starts_span = differs_from_previous(producers, epochs, transactional, regions, batches["leader_epoch"]) | control
    starts_span[1:] |= control[:-1]
    starts = np.flatnonzero(starts_span)
    ends = np.append(starts[1:], len(batches)) - 1
    return {
        "producer_id": producers[starts],
        "producer_epoch": epochs[starts].astype(np.int32),
        "leader_epoch": batches["leader_epoch"][starts],
        "base_offset": base[starts],
        "last_offset": batches["last_offset"][starts],
        "end_offset": batches["last_offset"][ends],
        "transactional": transactional[starts],
        "control": control[starts],
        "marker": batches["marker"][starts],
        "region": regions[starts],
        "records": np.add.reduceat(batches["record_count"].astype(np.int64), starts),
        "digest": np.bitwise_xor.reduceat(_digests(batches), starts).view(np.int64),
    }


def differs_from_previous(*columns: Array) -> Flags:
    """Return for each row whether any column differs from the row before."""
    differs = np.ones(len(columns[0]), np.bool_)
    differs[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return differs


def _digests(batches: "Batches") -> npt.NDArray[np.uint64]:
    """Mix the offsets and the checksum of each batch into 64 bits (the finalizer of splitmix64)."""
    mixed = batches["base_offset"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= batches["last_offset"].astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    mixed += batches["crc"].astype(np.uint64) * np.uint64(0x8CB92BA72F3D8DD7)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def read_records(ranges: DataFrame, segments: Sequence[ReplicaSegment]) -> DataFrame:
    """Return `ENTRIES` of the records, and of empty batches, in these ranges (REPLICA, ``from``, ``to``)."""
    by_file = (
        ranges.join(numbered(ranges.sparkSession, segments), REPLICA)
        .where("file_offset <= to")
        # An offset is in the last segment that begins at or before it.
        .groupBy("from", "to", *REPLICA)
        .agg(f.max_by("segment", "file_offset").alias("segment"))
        .groupBy("segment")
        .agg(f.collect_list("from").alias("from"), f.collect_list("to").alias("to"))
    )
    return read_segments(by_file, segments, ENTRIES, _segment_records)


def _segment_records(
    segment: ReplicaSegment, _index: int, start: Sequence[int], end: Sequence[int], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    order = np.argsort(start)
    starts, ends = np.array(start)[order], np.maximum.accumulate(np.array(end)[order])
    run, topic, partition = segment.place
    head = (run, AFTER_REJOIN, DISK, segment.broker, topic, partition, True)
    with segment.path.open("rb", buffering=0) as file:
        for block in until_cut(iter_blocks(file, source=str(segment.path), verify_crc=False)):
            rows = [(*head, *row, None) for row in _rows(block, starts, ends)]
            if rows:
                yield pa.RecordBatch.from_pydict(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema)


def _rows(block: Block, starts: Longs, ends: Longs) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of each record in the ranges; sets ``first_in_batch`` of the first one in each batch."""
    for index in np.flatnonzero(_any_within(block.batches["base_offset"], block.batches["last_offset"], starts, ends)):
        is_first = True
        for row in batch_rows(block.batch(int(index)), block.source):
            offset = row[_OFFSET_AT]
            if offset is None or _any_within(np.array([offset]), np.array([offset]), starts, ends)[0]:
                yield (*row[:_FIRST_AT], is_first, *row[_OFFSET_AT:])
                is_first = False


def _any_within(first: Longs, last: Longs, starts: Longs, ends: Longs) -> Flags:
    """Return for each pair of first and last offsets whether it overlaps a range; ``starts`` is sorted."""
    nearest = np.searchsorted(starts, last, "right") - 1
    overlaps: Flags = (nearest >= 0) & (ends[nearest] >= first)
    return overlaps
