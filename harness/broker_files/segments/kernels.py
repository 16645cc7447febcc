"""The compiled loops that locate batches and records.

Importing this module compiles them, or loads an earlier compilation (``jit``). They stop at invalid data and return its
place; the caller then calls the reference (``batches``, ``records``) for the error message.
"""

# ruff: noqa: PLR2004 (places in Kafka's layouts)

from typing import Any

import numba
from numba import int8, int32, int64, types, uint64

from harness.broker_files.segments import batches as segments
from harness.broker_files.segments.batches import APPEND_TIME, CODEC_MASK, CONTROL, LOG_OVERHEAD, MAGIC
from harness.broker_files.segments.blocks import ASK, HEADERS, NO_MARKER, OTHER_CONTROL, Batches, Bytes, Ints, Longs
from harness.broker_files.segments.codecs import CODECS
from harness.broker_files.segments.jit import BYTES, compiled, copy_bytes, inlined, load_byte
from harness.broker_files.segments.records import MAX_INT64

READ, CUT, WRONG, ZERO, FULL = 0, 1, 2, 3, 4
"""The end of a walk: at the end of the data, inside a batch, at data that no broker writes, at a length of zero, or at
the end of the rows."""

_HEADER_BYTES, _MAX_BATCH_BYTES = segments.HEADER.size, segments.MAX_BATCH_BYTES
_KNOWN_CODECS = len(CODECS)
_LEAST_BYTES_0, _LEAST_BYTES_1 = segments.LEAST_BYTES
_CONTROL_KEY_BYTES, _CONTROL_VALUE_BYTES = 4, 6

_BEYOND = 1 << 62
"""A position after every end, returned for data that cannot be read."""

_ROWS = numba.from_dtype(HEADERS)[::1]


@compiled(int64(BYTES, int64, int64))
def _big_endian(data: Bytes, at: int, size: int) -> Any:
    """Read a signed integer of ``size`` bytes."""
    value = int64(int8(data[at]))
    for i in range(at + 1, at + size):
        value = (value << 8) | data[i]
    return value


@inlined
def _varint(data: Bytes, at: int, limit: int) -> tuple[Any, Any]:
    """Read a zigzag number; return it with the place after it, `_BEYOND` if it is cut or does not fit 64 bits."""
    if at >= limit:
        return 0, _BEYOND
    byte = load_byte(data, at)
    raw = uint64(byte & 0x7F)
    at += 1
    if byte & 0x80:
        shift = uint64(7)
        while True:
            if at >= limit or shift > 63:
                return 0, _BEYOND
            byte = load_byte(data, at)
            at += 1
            if shift == 63 and byte > 1:
                return 0, _BEYOND
            raw |= uint64(byte & 0x7F) << shift
            shift += uint64(7)
            if not byte & 0x80:
                break
    return int64(raw >> uint64(1)) ^ -int64(raw & uint64(1)), at


@inlined
def read_field(data: Bytes, at: int, limit: int) -> tuple[Any, Any, Any]:
    """Read a length, negative for null; return it with the place of the bytes and the place after them."""
    size, at = _varint(data, at, limit)
    if size <= 0:
        return size, at, at
    return size, at, at + size if size <= limit - at else _BEYOND


@compiled(types.UniTuple(int64, 10)(BYTES, int64, int64))
def _record(data: Bytes, at: int, limit: int) -> tuple[int, ...]:
    """Return a record's end, or -1 if no broker writes it, and its fields; a size of -1 is null."""
    length, at = _varint(data, at, limit)
    if not 0 < length <= limit - at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0
    end = at + length
    attributes = int64(load_byte(data, at))
    timestamp_delta, at = _varint(data, at + 1, end)
    offset_delta, at = _varint(data, at, end)
    key_size, key_at, at = read_field(data, at, end)
    value_size, value_at, at = read_field(data, at, end)
    header_count, at = _varint(data, at, end)
    headers_at, remaining = at, header_count
    while remaining > 0 and at < end:
        name_size, _, at = read_field(data, at, end)
        _, _, at = read_field(data, at, end)
        if name_size < 0:
            at = _BEYOND
        remaining -= 1
    if remaining:
        at = _BEYOND
    return (
        end if at == end else -1,
        attributes,
        timestamp_delta,
        offset_delta,
        key_at,
        max(key_size, -1),
        value_at,
        max(value_size, -1),
        headers_at,
        header_count,
    )


@inlined
def _marker(data: Bytes, at: int, row: Any) -> Any:
    """Read the marker of a control batch in the format that brokers write, else return `ASK`."""
    if row.attributes & CODEC_MASK:
        return ASK
    end = at + row.size_bytes
    after, _, _, offset_delta, key_at, key_size, value_at, value_size, _, _ = _record(data, at + _HEADER_BYTES, end)
    if after != end or offset_delta or key_size < _CONTROL_KEY_BYTES or value_size < _CONTROL_VALUE_BYTES:
        return ASK
    number = _big_endian(data, key_at + 2, 2)
    if data[key_at] & 0x80 or data[value_at] & 0x80 or not 0 <= number < OTHER_CONTROL:
        return ASK
    return number


@inlined
def _read_header(data: Bytes, at: int, row: Any) -> Any:
    """Fill a row from the header of a complete batch; return whether a broker may have written it."""
    last_offset_delta = _big_endian(data, at + 23, 4)
    row.leader_epoch = _big_endian(data, at + 12, 4)
    row.crc = _big_endian(data, at + 17, 4)
    row.attributes = _big_endian(data, at + 21, 2)
    row.last_offset = row.base_offset + last_offset_delta
    row.timestamp_base_ms = _big_endian(data, at + 27, 8)
    row.max_timestamp_ms = _big_endian(data, at + 35, 8)
    row.producer_id = _big_endian(data, at + 43, 8)
    row.producer_epoch = _big_endian(data, at + 51, 2)
    row.base_sequence = _big_endian(data, at + 53, 4)
    row.record_count = _big_endian(data, at + 57, 4)
    row.marker = NO_MARKER
    if row.attributes & CONTROL and row.record_count:
        row.marker = _marker(data, at, row)
    return (
        0 <= last_offset_delta <= MAX_INT64 - row.base_offset
        and 0 <= row.record_count <= last_offset_delta + 1
        and row.attributes & CODEC_MASK < _KNOWN_CODECS
    )


@compiled(types.UniTuple(int64, 3)(BYTES, int64, int64, _ROWS))
def walk_batches(  # noqa: PLR0911
    data: Bytes, position: int, previous_offset: int, rows: Batches
) -> tuple[int, int, int]:
    """Fill ``rows`` with the headers of consecutive entries from byte 0 of ``data``, which is at ``position``.

    Returns the number of rows, the place of the first unread byte and the status. CRCs are not verified. ``rows`` must
    have a row for every 26 bytes, the smallest size of an entry.
    """
    count = at = 0
    while at < len(data):
        available = len(data) - at
        if available < LOG_OVERHEAD:
            return count, at, CUT
        length = _big_endian(data, at + 8, 4)
        if length == 0:
            return count, at, ZERO
        if available <= LOG_OVERHEAD + 4:
            return count, at, CUT
        magic = data[at + 16]
        least = _HEADER_BYTES if magic == MAGIC else _LEAST_BYTES_1 if magic == 1 else _LEAST_BYTES_0
        size = LOG_OVERHEAD + length
        if magic > MAGIC or not least <= size <= _MAX_BATCH_BYTES:
            return count, at, WRONG
        if size > available:
            return count, at, CUT
        row = rows[count]
        row.position = position + at
        row.size_bytes = size
        row.magic = magic
        row.base_offset = _big_endian(data, at, 8)
        if magic == MAGIC:
            if not _read_header(data, at, row):
                return count, at, WRONG
        else:
            row.last_offset = row.base_offset
            row.crc = _big_endian(data, at + 12, 4)
            row.timestamp_base_ms = row.max_timestamp_ms = row.producer_id = 0
            row.leader_epoch = row.base_sequence = row.record_count = 0
            row.attributes = row.producer_epoch = row.marker = 0
        if row.base_offset <= previous_offset:
            return count, at, WRONG
        previous_offset = row.last_offset
        count += 1
        at += size
    return count, at, READ


@compiled(
    types.UniTuple(int64, 2)(
        BYTES, _ROWS, int64[::1], int64[::1], int64[::1],
        int32[::1], int64[::1], int64[::1], BYTES,
        int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1],
    )
)  # fmt: skip
def walk_records(  # noqa: PLR0917
    data: Bytes, batches: Batches, starts: Longs, ends: Longs, state: Longs,
    batch_column: Ints, offsets: Longs, timestamps_ms: Longs, attributes_column: Bytes,
    keys_at: Ints, key_sizes: Ints, values_at: Ints, value_sizes: Ints, headers_at: Ints, header_counts: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Fill the columns with the records of ``batches``, whose unpacked bytes are ``data[starts[i]:ends[i]]``.

    ``state`` is where to continue: the index of a batch, the number of its records that are done, the place in ``data``
    (from the second record on) and the previous offset delta. It is ``[0, 0, 0, -1]`` at first, and is updated. Returns
    the number of rows and the status; ``batch_column`` has indexes into ``batches``.
    """
    count = 0
    index, done, at, previous_delta = state
    while index < len(batches):
        row = batches[index]
        end = ends[index]
        if done == 0:
            at, previous_delta = starts[index], int64(-1)
        last_delta = row.last_offset - row.base_offset
        base_ms = row.max_timestamp_ms if row.attributes & APPEND_TIME else row.timestamp_base_ms
        status = READ
        while done < row.record_count:
            if count == len(offsets):
                status = FULL
                break
            after, attributes, delta_ms, delta, key_at, key_size, value_at, value_size, header_at, headers = _record(
                data, at, end
            )
            if row.attributes & APPEND_TIME:
                delta_ms = 0
            if after < 0 or not previous_delta < delta <= last_delta:
                status = WRONG
                break
            if (delta_ms > 0 and base_ms > MAX_INT64 - delta_ms) or (delta_ms < 0 and base_ms < ~MAX_INT64 - delta_ms):
                status = WRONG
                break
            batch_column[count] = index
            offsets[count] = row.base_offset + delta
            timestamps_ms[count] = base_ms + delta_ms
            attributes_column[count] = attributes
            keys_at[count] = key_at
            key_sizes[count] = key_size
            values_at[count] = value_at
            value_sizes[count] = value_size
            headers_at[count] = header_at
            header_counts[count] = headers
            previous_delta = delta
            at = after
            done += 1
            count += 1
        if status == READ and at != end:
            status = WRONG
        if status != READ:
            state[0], state[1], state[2], state[3] = index, done, at, previous_delta
            return count, status
        index += 1
        done = 0
    state[0], state[1] = index, 0
    return count, READ


@compiled(types.UniTuple(int64, 2)(BYTES, int64, int64, int64, BYTES))
def copy_records_of_share(data: Bytes, records: int, number: int, count: int, out: Bytes) -> tuple[int, int]:
    """Copy the records whose key's hash (FNV-1a, from bit 40 on) is ``number`` modulo ``count``.

    ``data`` is a sequence of this number of ``records``; ``out`` has the same size. Returns the number of copied
    records and their bytes; -1 and 0 for records that no broker writes.
    """
    at = size = copied = 0
    for _ in range(records):
        after, _, _, _, key_at, key_size, _, _, _, _ = _record(data, at, len(data))
        if after < 0:
            return -1, 0
        hashed = uint64(0xCBF29CE484222325)
        for place in range(key_at, key_at + key_size):
            hashed = (hashed ^ uint64(load_byte(data, place))) * uint64(0x100000001B3)
        if int64(hashed >> uint64(40)) % count == number:
            copied += 1
            size += after - at
            copy_bytes(out, size - (after - at), data, at, after - at)  # type: ignore[call-arg]
        at = after
    return (copied, size) if at == len(data) else (-1, 0)
