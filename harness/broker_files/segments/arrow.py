"""Segment files as Arrow tables: a row for each batch or record, with the requested columns only.

`BATCHES`: a batch's header fields, under the names of ``batches.Batch``. ``marker`` is ``commit``, ``abort``
or ``other``, null for data and for a batch that compaction has emptied. An entry of magic 0 or 1 is a row of nulls
except for ``magic``, ``position``, ``size_bytes``, ``last_offset`` and ``crc``, which is its CRC32.

`RECORDS`: the records of data batches of magic 2. ``batch_offset`` is the base offset of a record's batch,
``attributes`` the record's own. Header names that are not UTF-8 keep their bytes, as backslash escapes. Sizes are in
bytes, times in milliseconds since the epoch. Every column is nullable.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from harness.broker_files.segments import blocks as segment_blocks
from harness.broker_files.segments.batches import APPEND_TIME, CODEC_MASK, CONTROL, DELETE_HORIZON, TRANSACTIONAL
from harness.broker_files.segments.codecs import CODECS

Table: TypeAlias = Literal["batches", "records"]

BATCHES: Final = pa.schema(
    {
        "magic": pa.int8(),
        "position": pa.int64(),
        "size_bytes": pa.int32(),
        "base_offset": pa.int64(),
        "last_offset": pa.int64(),
        "record_count": pa.int32(),
        "leader_epoch": pa.int32(),
        "crc": pa.int64(),
        "codec": pa.string(),
        "timestamp_type": pa.string(),
        "base_timestamp_ms": pa.int64(),
        "max_timestamp_ms": pa.int64(),
        "delete_horizon_ms": pa.int64(),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int16(),
        "base_sequence": pa.int32(),
        "transactional": pa.bool_(),
        "control": pa.bool_(),
        "marker": pa.string(),
    }
)
RECORDS: Final = pa.schema(
    {
        "batch_offset": pa.int64(),
        "offset": pa.int64(),
        "timestamp_ms": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()})),
        "tombstone": pa.bool_(),
        "attributes": pa.int16(),
        "leader_epoch": pa.int32(),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int16(),
        "transactional": pa.bool_(),
    }
)
SCHEMAS: Final[dict[str, pa.Schema]] = {"batches": BATCHES, "records": RECORDS}

_OF_OLD_ENTRIES = frozenset({"magic", "position", "size_bytes", "last_offset", "crc"})
_LOG = logging.getLogger(__name__)


def read_table(
    file: segment_blocks.Readable,
    table: Table,
    columns: Sequence[str] | None = None,
    *,
    source: str,
    block_bytes: int = segment_blocks.BLOCK_BYTES,
    verify_crc: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Read a segment file from its current position, as `BATCHES` or `RECORDS`; ``columns`` None: all.

    An Arrow batch has at most 131,072 rows, or the rows of one block. Payloads are unpacked for `RECORDS` only, and
    keys, values and headers copied if their column is requested. Raises as ``blocks`` does, after the rows before.
    """
    full_schema = SCHEMAS[table]
    schema = full_schema if columns is None else pa.schema([full_schema.field(name) for name in columns])
    blocks = segment_blocks.iter_blocks(file, source=source, block_bytes=block_bytes, verify_crc=verify_crc)
    return _batches(blocks, schema) if table == "batches" else _records(blocks, schema, source)


def _batches(blocks: Iterator[segment_blocks.Block], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        for rows, given in ((block.batches, schema.names), (block.skipped, _OF_OLD_ENTRIES)):
            if count := len(rows):
                arrays = [_of_batch(f, rows) if f.name in given else pa.nulls(count, f.type) for f in schema]
                yield _record_batch(arrays, schema, count)


def _of_batch(field: pa.Field, rows: segment_blocks.Batches) -> pa.Array:
    """Make a column of `BATCHES`, or a column of `RECORDS` that comes from the batch."""
    make = _BATCH_COLUMNS.get(field.name)
    return make(rows, rows["attributes"]) if make else pa.array(rows[field.name]).cast(field.type)


def _names_by_index(indexes: Any, names: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indexes, mask=indexes < 0), list(names)).dictionary_decode()


def _records(blocks: Iterator[segment_blocks.Block], schema: pa.Schema, source: str) -> Iterator[pa.RecordBatch]:
    skipped = 0
    for block in blocks:
        skipped += len(block.skipped)
        for records in segment_blocks.unpack(block):
            arrays = [
                make(records)
                if (make := _RECORD_COLUMNS.get(field.name))
                else _of_batch(field, block.batches).take(pa.array(records.batch))
                for field in schema
            ]
            yield _record_batch(arrays, schema, len(records.offset))
    if skipped:
        _LOG.warning("%s: %d entries of magic 0 or 1 are not read", source, skipped)


def _binary(data: segment_blocks.Bytes, places: segment_blocks.Ints, sizes: segment_blocks.Ints) -> pa.Array:
    """Copy fields into a column of bytes. ``data`` must be small enough for 32-bit offsets."""
    from harness.broker_files.segments.fields import copy_fields  # noqa: PLC0415  (loads numba)

    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    values = np.empty(offsets[-1], np.uint8)
    copy_fields(data, places, sizes, offsets, values)
    valid = np.packbits(sizes >= 0, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), len(sizes), [pa.py_buffer(b) for b in (valid, offsets, values)])


def _headers(records: segment_blocks.Unpacked) -> pa.Array:
    from harness.broker_files.segments.fields import walk_headers  # noqa: PLC0415  (loads numba)

    offsets = np.zeros(len(records.header_count) + 1, np.int32)
    np.cumsum(records.header_count, out=offsets[1:])
    columns = [np.empty(offsets[-1], np.int32) for _ in range(4)]
    walk_headers(records.data, len(records.data), records.headers_at, records.header_count, *columns)
    names, values = (_binary(records.data, *columns[at : at + 2]) for at in (0, 2))
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        names = pa.array([name.decode("utf-8", "backslashreplace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, values], names=["name", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def _record_batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))  # a count needs no column


_BATCH_COLUMNS: Final[dict[str, Callable[[segment_blocks.Batches, Any], pa.Array]]] = {
    "codec": lambda _, attributes: _names_by_index(attributes & CODEC_MASK, CODECS),
    "timestamp_type": lambda _, attributes: _names_by_index(
        (attributes & APPEND_TIME != 0).astype(np.int8), ("create", "append")
    ),
    "marker": lambda rows, _: _names_by_index(rows["marker"], segment_blocks.MARKER_NAMES),
    "base_timestamp_ms": lambda rows, attributes: pa.array(
        rows["timestamp_base_ms"], mask=attributes & DELETE_HORIZON != 0
    ),
    "delete_horizon_ms": lambda rows, attributes: pa.array(
        rows["timestamp_base_ms"], mask=attributes & DELETE_HORIZON == 0
    ),
    "transactional": lambda _, attributes: pa.array(attributes & TRANSACTIONAL != 0),
    "control": lambda _, attributes: pa.array(attributes & CONTROL != 0),
    "batch_offset": lambda rows, _: pa.array(rows["base_offset"]),
}
"""Functions of batches and their attributes; other columns are fields of headers."""
_RECORD_COLUMNS: Final[dict[str, Callable[[segment_blocks.Unpacked], pa.Array]]] = {
    "offset": lambda records: pa.array(records.offset),
    "timestamp_ms": lambda records: pa.array(records.timestamp_ms),
    "key": lambda records: _binary(records.data, records.key_at, records.key_size),
    "value": lambda records: _binary(records.data, records.value_at, records.value_size),
    "headers": _headers,
    "attributes": lambda records: pa.array(records.attributes.astype(np.int16)),
    "tombstone": lambda records: pa.array(records.is_tombstone),
}
"""Functions of records; other columns come from the batch."""
