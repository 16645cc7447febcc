"""Decode and encode a record inside a batch's unpacked payload (``DefaultRecord``, ``ByteUtils``).

The record of a control batch is a transaction marker with its type and its coordinator's epoch: ``ControlRecordType``
defines the key, ``EndTransactionMarker`` the value of a COMMIT or an ABORT.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_INT64: Final = 2**63 - 1
DATA: Final = ("value", "tombstone")
"""The kinds of clients' records, as observations and checkers name them."""

ABORT, COMMIT = MARKERS = ("abort", "commit")
"""The types that end a transaction, by their stored number; observations and checkers use these names."""

_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_VERSION = 0

MARKER_KEYS: Final = {kind: _MARKER_KEY.pack(_MARKER_VERSION, number) for number, kind in enumerate(MARKERS)}
"""The key of each type's record, as brokers write it."""

_MAX_VARINT_SHIFT = 63  # ten bytes: a varlong
_MAX_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``timestamp_ms``: the batch's append time if the topic's timestamp type is ``LogAppendTime``.

    ``attributes`` is a byte in which Kafka uses no bit yet.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes its key."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a control batch; ``coordinator_epoch`` is None for types that end no transaction."""

    type: str
    coordinator_epoch: int | None


def read_record(
    data: bytes, position: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> tuple[Record, int]:
    """Parse the record at ``position`` and return it with the position after it.

    Raises ``ValueError`` with the reason or, if ``data`` ends too early, ``IndexError``. A field that is too long is
    detected at the record's end. Header names that are not UTF-8 keep their bytes, as backslash escapes.
    """
    length, start = _read_varint(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise ValueError(f"it announces {length} bytes, {len(data) - start} are left")
    timestamp_delta, position = _read_varint(data, start + 1)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = _read_varint(data, position)
    if header_count < 0:
        raise ValueError(f"it announces {header_count} headers")
    headers = []
    for _ in range(header_count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise ValueError("it has a header without a name")
        header_value, position = _read_bytes(data, position)
        headers.append((name.decode("utf-8", "backslashreplace"), header_value))
    if position != end:
        raise ValueError(f"it announces {length} bytes, its fields take {position - start}")
    timestamp_ms = base_timestamp_ms + timestamp_delta if append_time_ms is None else append_time_ms
    if not -MAX_INT64 - 1 <= timestamp_ms <= MAX_INT64:
        raise ValueError(f"its timestamp is {timestamp_ms}")
    return Record(base_offset + offset_delta, timestamp_ms, key, value, tuple(headers), data[start]), position


def encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Encode a record for ``read_record``."""
    deltas = (record.timestamp_ms - base_timestamp_ms, record.offset - base_offset)
    content = (record.key, record.value)
    headers = (field for name, value in record.headers for field in (name.encode(), value))
    parts = (*map(_encode_varint, deltas), *map(_encode_bytes, content), _encode_varint(len(record.headers)))
    body = b"".join([bytes([record.attributes]), *parts, *map(_encode_bytes, headers)])
    return _encode_varint(len(body)) + body


def read_marker(record: Record) -> Marker:
    """Return a record's marker. Raises ``ValueError`` if ``ControlRecordType`` or ``EndTransactionMarker`` would."""
    number = _number(_MARKER_KEY, record.key)
    if number not in range(len(MARKERS)):
        return Marker(f"control-{number}", None)
    return Marker(MARKERS[number], coordinator_epoch(record))


def first_marker(markers: Iterable[tuple[int, int]], producer_id: int, offset: int) -> int | None:
    """Return the offset of the producer's first marker after an offset, of all (offset, producer id); else None.

    `checkers.replay.batch_outcomes` has the same rule for tables.
    """
    return min((at for at, producer in markers if producer == producer_id and at > offset), default=None)


def coordinator_epoch(record: Record) -> int:
    """Return the epoch of the coordinator in the record of a COMMIT or an ABORT. Raises as `read_marker` does."""
    return _number(_MARKER_VALUE, record.value)


def _number(layout: struct.Struct, data: bytes | None) -> int:
    """Return the field after the version."""
    try:
        version, number = layout.unpack_from(data or b"")
    except struct.error as error:
        raise ValueError(str(error)) from error
    if version < 0:
        raise ValueError(f"version {version}")
    return int(number)


def marker_record(offset: int, timestamp_ms: int, kind: str, epoch: int = 0) -> Record:
    """Return the record of a COMMIT or an ABORT. ``epoch``: of the coordinator."""
    return Record(offset, timestamp_ms, MARKER_KEYS[kind], _MARKER_VALUE.pack(_MARKER_VERSION, epoch))


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes; any negative length is null (``Utils.readBytes``)."""
    size, position = _read_varint(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _encode_bytes(data: bytes | None) -> bytes:
    return _encode_varint(-1) if data is None else _encode_varint(len(data)) + data


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint, and return it with the position after it."""
    byte = data[position]
    position += 1
    raw = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > _MAX_VARINT_SHIFT:
            raise ValueError("a varint takes more than ten bytes")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw > _MAX_UINT64:
        raise ValueError("a varint takes more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def _encode_varint(value: int) -> bytes:
    raw, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while raw > 0x7F:  # noqa: PLR2004
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
