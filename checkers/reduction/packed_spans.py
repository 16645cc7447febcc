"""Producer spans as packed arrays of 74 bytes each, which decide whether the logs of a partition are consistent.

A partition of any size is examined in chunks of offsets, the same for all its replicas, so that no task holds more than
a chunk. A row of `PACKED_SPANS` has the spans of one file in one chunk; a row for each file sums up the file.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from checkers.evidence.copies import SIDE_READERS_OF_COPIES
from checkers.evidence.schemas import INT, LONG, TEXT, table
from checkers.reduction.segments import BEFORE, Array, Columns, ReplicaSegment, rows_of_files, span_arrays
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.blocks import MARKER_NAMES
from harness.broker_files.segments.records import ABORT, COMMIT

CHUNK_OFFSETS: Final = 1 << 20
FILE: Final = -1
"""The chunk of a row that sums up a file."""

OPEN, DATA, COMMITS, ABORTS, INDEX, EMPTIED, OTHER = range(7)
"""Kinds of rows, in the order in which they are sorted at the same offset: an open transaction of a producer snapshot
or of a broker's answer, transactional data, the markers, an entry of a ``.txnindex``, and control batches that end no
transaction: without records, or of another type."""

SPAN: Final = np.dtype([
    ("broker", np.int32), ("segment", np.int32), ("kind", np.int8), ("epoch", np.int32), ("producer", np.int64),
    ("at", np.int64), ("since", np.int64), ("leader_epoch", np.int32), ("last", np.int64), ("end", np.int64),
    ("region", np.int8), ("records", np.int64), ("digest", np.int64),
])  # fmt: skip
LOG_FIELDS: Final = {
    "epoch": "producer_epoch", "producer": "producer_id", "at": "base_offset", "leader_epoch": "leader_epoch",
    "last": "last_offset", "end": "end_offset", "region": "region", "records": "records", "digest": "digest",
}  # fmt: skip
"""The fields of `SPAN` for rows of a log, with the columns of `PRODUCER_SPANS`."""
"""``at``: the first offset of data, the offset of a marker (also of an index entry), or of a snapshot. ``since``: the
first offset of the transaction of an index entry. Rows that are not of a log have only the fields up to ``since``."""

PLAIN: Final = np.dtype([("region", np.int8), ("records", np.int64), ("digest", np.int64)])
"""The batches outside transactions in one region of a file."""

EPOCH: Final = np.dtype([("epoch", np.int64), ("start", np.int64), ("end", np.int64)])
"""A leader epoch of a file: the lowest first offset and the highest last offset of its batches. A leader epoch
checkpoint gives starts only; their ends are -1."""

PACKED_SPANS = table(
    run=TEXT, topic=TEXT, partition=INT, chunk=LONG, broker=INT, segment=INT,
    spans=t.BinaryType(), beliefs=t.BinaryType(),
    log_end=LONG, digest=LONG, records=LONG, epochs=t.BinaryType(), plain=t.BinaryType(), problem=TEXT,
)  # fmt: skip
"""``spans``: of `SPAN`. The row of a file has ``log_end`` (null without batches), ``digest`` and ``records`` of its
data from the log start on, ``epochs`` of `EPOCH`, ``plain`` of `PLAIN`, and ``problem``: why it cannot be read.
``beliefs``: of `candidate_keys.BELIEF`, about the data of one file; they are derived later."""


def packed_spans(
    spark: SparkSession,
    segments: Sequence[ReplicaSegment],
    *,
    side_files: bool = True,
    chunk_offsets: int = CHUNK_OFFSETS,
) -> DataFrame:
    """Return `PACKED_SPANS` of these files, and of the side files next to them unless these are read elsewhere."""

    def batches(segment: ReplicaSegment, index: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for row in _rows(segment, index, chunk_offsets, side_files=side_files):
            yield pa.RecordBatch.from_pylist([{**segment.replica, **row}], schema=schema)

    return rows_of_files(spark, segments, PACKED_SPANS, batches)


def _rows(segment: ReplicaSegment, index: int, chunk_offsets: int, *, side_files: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, without the columns of its replica."""
    facts: dict[str, Any] = {"chunk": FILE, "segment": index, "log_end": None, "digest": 0, "records": 0}
    epochs: list[tuple[int, ...]] = []
    plain: list[tuple[int, ...]] = []
    for part in span_arrays(segment):
        if isinstance(part, str):
            facts["problem"] = part
            continue
        yield from _by_chunk(packed(part, segment.broker, index), index, chunk_offsets)
        plain += _plain(part)
        compared = ~part["control"] & (part["region"] != BEFORE)
        facts["log_end"] = max(facts["log_end"] or 0, int(part["end_offset"].max()) + 1)
        facts["digest"] ^= int(np.bitwise_xor.reduce(part["digest"][compared], initial=0))
        facts["records"] += int(part["records"][compared].sum())
        for epoch in np.unique(part["leader_epoch"]).tolist():
            here = part["leader_epoch"] == epoch
            epochs.append((epoch, part["base_offset"][here].min(), part["end_offset"][here].max()))
    try:
        side, starts = _side_files(segment) if side_files else ([], [])
    except (CorruptLogError, OSError) as error:
        yield {**facts, "problem": str(error)}
        return
    columns = np.array(side, np.int64).reshape(-1, 5).T
    yield from _by_chunk(side_spans(segment.broker, index, columns), index, chunk_offsets)
    epochs += [(epoch, start, -1) for epoch, start in starts]
    yield {**facts, "epochs": np.array(epochs, EPOCH).tobytes(), "plain": np.array(plain, PLAIN).tobytes()}


def arrays(values: pa.ChunkedArray, dtype: np.dtype[Any]) -> Array:
    """Return the rows that binary values hold."""
    return np.concatenate([np.empty(0, dtype), *(np.frombuffer(v.as_buffer(), dtype) for v in values if v.is_valid)])


def side_spans(broker: int, segment: int, columns: Array) -> Array:
    """Return `SPAN` of rows that are not of a log. ``columns``: kind, epoch, producer, ``at`` and ``since``."""
    spans = np.zeros(columns.shape[1], SPAN)
    spans["broker"], spans["segment"] = broker, segment
    for name, values in zip(("kind", "epoch", "producer", "at", "since"), columns, strict=True):
        spans[name] = values
    return spans


def packed(part: Columns, broker: int, index: int) -> Array:
    """Return the spans that matter for outcomes: transactional data, and control batches."""
    kinds = np.array([{ABORT: ABORTS, COMMIT: COMMITS}.get(name, OTHER) for name in MARKER_NAMES] + [DATA], np.int8)
    # A marker of -1 takes the last kind.
    kind = np.where(part["control"] & (part["marker"] < 0), np.int8(EMPTIED), kinds[part["marker"]])
    rows = np.flatnonzero(part["control"] | part["transactional"])
    spans = np.empty(len(rows), SPAN)
    spans["broker"], spans["segment"], spans["since"], spans["kind"] = broker, index, -1, kind[rows]
    for name, column in LOG_FIELDS.items():
        spans[name] = part[column][rows]
    return spans


def _plain(part: Columns) -> Iterator[tuple[int, ...]]:
    is_plain = ~(part["control"] | part["transactional"])
    for region in np.unique(part["region"][is_plain]).tolist():
        here = is_plain & (part["region"] == region)
        yield region, part["records"][here].sum(), np.bitwise_xor.reduce(part["digest"][here])


def _by_chunk(spans: Array, index: int, chunk_offsets: int) -> Iterator[dict[str, Any]]:
    chunks = spans["at"] // chunk_offsets
    for chunk in np.unique(chunks).tolist():
        yield {"chunk": chunk, "segment": index, "spans": spans[chunks == chunk].tobytes()}


def _side_files(segment: ReplicaSegment) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Return rows of `SPAN` without broker and segment, and leader epochs with their starts.

    The last segment stands for the files of its replica, of whose producer snapshots the newest counts. Raises
    ``CorruptLogError`` and ``OSError``.
    """

    def read(name: str, paths: Iterable[Path]) -> list[Any]:
        return [row for path in paths for row in SIDE_READERS_OF_COPIES[name].rows(path)]

    aborts = read("aborts", [segment.txnindex] if segment.txnindex is not None else [])
    rows: list[tuple[int, ...]] = [(INDEX, -1, producer, last, first) for producer, first, last in aborts]
    if not segment.is_last:
        return rows, []
    folder = segment.path.parent
    snapshots = read("producers", folder.glob("*.snapshot"))
    newest = max((row[0] for row in snapshots), default=None)
    is_open = (row for row in snapshots if row[0] == newest and row[-1] is not None)
    rows += [(OPEN, -1, producer, as_of, -1) for as_of, producer, *_ in is_open]
    return rows, read("epochs", folder.glob("leader-epoch-checkpoint"))
