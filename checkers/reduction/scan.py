"""Reduce segments to producer spans, from which beliefs are derived without the records.

A producer span is a sequence of batches of one producer and one producer epoch between two markers, in one segment. All
batches of a span have the same outcome. A log of many records has a few thousand spans; a digest of the batches'
checksums stands for the records. The checksums are computed, not only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.files import shares
from checkers.evidence.schemas import FLAG, INT, LONG, TEXT, table
from harness.broker_files.segments.batches import CONTROL, TRANSACTIONAL, CorruptLogError
from harness.broker_files.segments.blocks import iter_blocks
from harness.broker_files.segments.columns import MARKER_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from checkers.evidence.files import SegmentFile
    from harness.broker_files.segments.columns import Batches

    Flags = npt.NDArray[np.bool_]

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

_TASK_BYTES: Final = 256 << 20
"""Bytes that a task reads: work for a tenth of a second, several times the time to start a task."""
_AT_ONCE = 1 << 16


def scan(spark: SparkSession, segments: Sequence[SegmentFile]) -> DataFrame:
    """Return `PRODUCER_SPANS` of these files; a file is read only when a job runs."""
    tasks = shares(segments, _TASK_BYTES)
    schema = to_arrow_schema(PRODUCER_SPANS)

    def part(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for index in tasks[number]:
                    yield from _producer_spans(segments[index], index, schema)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(part, PRODUCER_SPANS)


def _producer_spans(segment: SegmentFile, index: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the producer spans of a file, and a row with the problem if it is unreadable from some position on."""
    pending: list[Batches] = []
    count = skipped = 0
    problem: str | None = None
    try:
        with segment.path.open("rb", buffering=0) as file:
            for block in iter_blocks(file, source=str(segment.path)):
                pending.append(block.batches[block.batches["last_offset"] < segment.log_end])
                count += len(pending[-1])
                skipped += len(block.skipped)
                if count >= _AT_ONCE:
                    yield _table(segment, index, np.concatenate(pending), schema)
                    pending, count = [], 0
    except CorruptLogError as error:
        problem = None if error.cut and segment.is_last else str(error)
    except OSError as error:
        problem = str(error)
    if count:
        yield _table(segment, index, np.concatenate(pending), schema)
    if skipped and problem is None:
        problem = f"{segment.path}: {skipped} entries of magic 0 or 1 are not read"
    if problem is not None:
        place = {"run": segment.run, "broker": segment.broker, "topic": segment.topic, "partition": segment.partition}
        yield pa.RecordBatch.from_pylist([{**place, "problem": problem}], schema=schema)


def _table(segment: SegmentFile, index: int, batches: Batches, schema: pa.Schema) -> pa.RecordBatch:
    control: Flags = (batches["attributes"] & CONTROL) != 0
    transactional: Flags = (batches["attributes"] & TRANSACTIONAL) != 0
    producers = np.where(transactional, batches["producer_id"], -1)
    order = np.argsort(producers, kind="stable")
    batches, control, transactional, producers = batches[order], control[order], transactional[order], producers[order]
    epochs = np.where(transactional, batches["producer_epoch"], -1)
    regions = _regions(segment, batches)
    starts = np.flatnonzero(
        _differs(producers, epochs, transactional, regions, batches["leader_epoch"]) | _borders(control)
    )
    ends = np.append(starts[1:], len(batches)) - 1
    rows = len(starts)
    columns: dict[str, Any] = {
        "run": pa.repeat(segment.run, rows),
        "broker": np.full(rows, segment.broker, np.int32),
        "topic": pa.repeat(segment.topic, rows),
        "partition": np.full(rows, segment.partition, np.int32),
        "segment": np.full(rows, index, np.int32),
        "producer_id": producers[starts],
        "producer_epoch": epochs[starts].astype(np.int32),
        "leader_epoch": batches["leader_epoch"][starts],
        "base_offset": batches["base_offset"][starts],
        "last_offset": batches["last_offset"][starts],
        "end_offset": batches["last_offset"][ends],
        "transactional": transactional[starts],
        "control": control[starts],
        "marker": [_marker(number) for number in batches["marker"][starts].tolist()],
        "region": regions[starts],
        "records": np.add.reduceat(batches["record_count"].astype(np.int64), starts),
        "digest": np.bitwise_xor.reduceat(_digests(batches), starts).view(np.int64),
        "first_in_batch": np.ones(rows, np.bool_),
        "problem": pa.nulls(rows, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _marker(number: int) -> str | None:
    return None if number < 0 else MARKER_NAMES[number]


def _regions(segment: SegmentFile, batches: Batches) -> npt.NDArray[np.int32]:
    base = batches["base_offset"]
    regions = (base >= segment.bound).astype(np.int32) + (base >= segment.shortest)
    return np.where(batches["last_offset"] < segment.log_start, BEFORE, regions).astype(np.int32)


def _differs(*columns: npt.NDArray[Any]) -> Flags:
    """Return for each row whether any column differs from the row before."""
    new = np.ones(len(columns[0]), np.bool_)
    if len(new):
        new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return new


def _borders(control: Flags) -> Flags:
    """Return for each row whether it or the row before is a control batch."""
    borders = control.copy()
    borders[1:] |= control[:-1]
    return borders


def _digests(batches: Batches) -> npt.NDArray[np.uint64]:
    """Mix the offsets and the checksum of each batch into 64 bits (the finalizer of splitmix64)."""
    mixed = batches["base_offset"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= batches["last_offset"].astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    mixed += batches["crc"].astype(np.uint64) * np.uint64(0x8CB92BA72F3D8DD7)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
