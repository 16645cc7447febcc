"""From a partition's files to rows, in Spark's Python workers: log entries and aborted-transaction indexes.

A row of ``entries`` is one record, or one batch that has none to show (a marker, or emptied by compaction).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from harness.history import HEADER_TXN
from harness.segments.batches import Batch, CorruptLogError, Record, iter_batches, iter_records, marker
from harness.segments.txnindex import iter_txnindex

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLICA_FIELDS = [
    t.StructField("run", t.StringType()),
    t.StructField("snapshot", t.StringType()),
    t.StructField("source", t.StringType()),
    t.StructField("broker", t.IntegerType()),
    t.StructField("topic", t.StringType()),
    t.StructField("partition", t.IntegerType()),
]
"""``source`` is disk or fetch."""

FILES = t.StructType([*REPLICA_FIELDS, t.StructField("path", t.StringType())])

ENTRIES = t.StructType(
    [
        *REPLICA_FIELDS,
        t.StructField("base_offset", t.LongType()),
        t.StructField("last_offset", t.LongType()),
        t.StructField("crc", t.LongType()),
        t.StructField("producer_id", t.LongType()),
        t.StructField("producer_epoch", t.IntegerType()),
        t.StructField("transactional", t.BooleanType()),
        t.StructField("control", t.BooleanType()),
        t.StructField("marker", t.StringType()),
        t.StructField("horizon_ms", t.LongType()),
        t.StructField("max_timestamp_ms", t.LongType()),
        t.StructField("first_in_batch", t.BooleanType()),
        t.StructField("offset", t.LongType()),
        t.StructField("key", t.BinaryType()),
        t.StructField("tombstone", t.BooleanType()),
        t.StructField("txn", t.StringType()),
        t.StructField("problem", t.StringType()),
        t.StructField("cut", t.BooleanType()),
    ]
)
"""``offset``, ``key``, ``tombstone`` and ``txn`` (the record header) are null where there is no record.
``problem`` is set on one row, all else null, for a file that is cut or corrupt from some byte on."""

ABORTS = t.StructType(
    [
        *REPLICA_FIELDS,
        t.StructField("producer_id", t.LongType()),
        t.StructField("first_offset", t.LongType()),
        t.StructField("last_offset", t.LongType()),
        t.StructField("problem", t.StringType()),
    ]
)
"""``.txnindex`` entries; ``last_offset`` is the ABORT marker's (`CompletedTxn`)."""

ROWS_PER_ARROW_BATCH = 10_000
REPLICA_WIDTH = len(REPLICA_FIELDS)


def parse_entries(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map FILES rows of ``.log`` or fetched files to ENTRIES rows."""
    yield from _in_arrow((row for file in _rows(tables) for row in _entries_of(file)), ENTRIES)


def parse_aborts(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map FILES rows of ``.txnindex`` files to ABORTS rows."""
    yield from _in_arrow((row for file in _rows(tables) for row in _aborts_of(file)), ABORTS)


def _entries_of(file: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    replica, path = file[:REPLICA_WIDTH], Path(file[REPLICA_WIDTH])
    try:
        for batch in iter_batches(path.read_bytes(), source=str(path)):
            yield from ((*replica, *row) for row in _batch_rows(batch, str(path)))
    except CorruptLogError as error:
        empty = (None,) * (len(ENTRIES) - REPLICA_WIDTH - 2)
        yield (*replica, *empty, str(error), error.cut)


def _batch_rows(batch: Batch, source: str) -> Iterator[tuple[Any, ...]]:
    told = marker(batch, source=source)
    head = (
        batch.base_offset,
        batch.last_offset,
        batch.crc,
        batch.producer_id,
        batch.producer_epoch,
        batch.is_transactional,
        batch.is_control,
        told.type if told else None,
        batch.delete_horizon_ms,
        batch.max_timestamp_ms,
    )
    if batch.is_control or batch.is_empty:
        yield (*head, True, None, None, None, None, None, None)
        return
    for index, record in enumerate(iter_records(batch, source=source)):
        yield (*head, index == 0, record.offset, record.key, record.value is None, _txn(record), None, None)


def _txn(record: Record) -> str | None:
    for name, value in record.headers:
        if name == HEADER_TXN and value is not None:
            return value.decode("utf-8", "backslashreplace")
    return None


def _aborts_of(file: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    replica, path = file[:REPLICA_WIDTH], Path(file[REPLICA_WIDTH])
    try:
        for aborted in iter_txnindex(path.read_bytes(), source=str(path)):
            yield (*replica, aborted.producer_id, aborted.first_offset, aborted.last_offset, None)
    except CorruptLogError as error:
        yield (*replica, None, None, None, str(error))


def _rows(tables: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for table in tables:
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def _in_arrow(rows: Iterator[tuple[Any, ...]], schema: t.StructType) -> Iterator[pa.RecordBatch]:
    """Pack rows into Arrow batches of bounded size."""
    arrow = to_arrow_schema(schema)
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS_PER_ARROW_BATCH:
            yield _arrow_batch(held, arrow)
            held = []
    if held:
        yield _arrow_batch(held, arrow)


def _arrow_batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
