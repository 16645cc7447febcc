"""Decode and encode the record of a control batch: the type and the coordinator epoch of a transaction marker.

``ControlRecordType`` defines the key, ``EndTransactionMarker`` the value of a COMMIT or an ABORT.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from harness.broker_files.segments.records import Record

ABORT, COMMIT = MARKERS = ("abort", "commit")
"""The types that end a transaction, by their stored number; observations and checkers use these names."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0

KEYS: Final = {kind: _KEY.pack(_VERSION, number) for number, kind in enumerate(MARKERS)}
"""The key of each type's record, as brokers write it."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a control batch; ``coordinator_epoch`` is None for types that end no transaction."""

    type: str
    coordinator_epoch: int | None


def read_marker(record: Record) -> Marker:
    """Return the marker in a control record.

    Raises ``ValueError`` if ``ControlRecordType`` or ``EndTransactionMarker`` would reject the record.
    """
    number = _number(_KEY, record.key)
    if number not in range(len(MARKERS)):
        return Marker(f"control-{number}", None)
    return Marker(MARKERS[number], coordinator_epoch(record))


def coordinator_epoch(record: Record) -> int:
    """Return the epoch of the coordinator in the record of a COMMIT or an ABORT. Raises as `read_marker` does."""
    return _number(_VALUE, record.value)


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
    return Record(offset, timestamp_ms, KEYS[kind], _VALUE.pack(_VERSION, epoch))
