"""Records of ``__transaction_state``: the state of a transactional id.

The key is a ``TransactionLogKey`` (version 0), the value a ``TransactionLogValue`` (versions 0 and 1, whose first
fields are the same); the fields after the state are not read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.broker_files.segments.records import Record

ONGOING = "Ongoing"
STATES = (
    "Empty", ONGOING, "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""Names by stored number (`TransactionState`)."""

FINISHED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States after which a coordinator writes no marker."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hqhib")
_VALUE_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The state of a transactional id; ``producer_id`` and ``state`` are None if it has expired."""

    transactional_id: str
    producer_id: int | None
    state: str | None


def transaction_state(record: Record) -> TransactionState | None:
    """Read a record; None for an unsupported version. Raises ``ValueError`` for a malformed record."""
    key = record.key or b""
    try:
        version, size = _KEY.unpack_from(key)
        if version != 0:
            return None
        if len(key) != _KEY.size + size:
            raise ValueError(f"a transactional id of {size} bytes in a key of {len(key)}")
        transactional_id = key[_KEY.size :].decode("utf-8", "backslashreplace")
        if record.value is None:
            return TransactionState(transactional_id, None, None)
        version, producer_id, _, _, number = _VALUE.unpack_from(record.value)
    except struct.error as error:
        raise ValueError(f"malformed transaction state: {error}") from error
    if version not in _VALUE_VERSIONS:
        return None
    if not 0 <= number < len(STATES):
        raise ValueError(f"transaction state {number}")
    return TransactionState(transactional_id, producer_id, STATES[number])
