"""``.txnindex`` files: the aborted transactions on this broker, one entry each.

The layout is that of ``AbortedTxn``; a broker appends entries in the order of the abort markers
(``TransactionIndex``). Unlike ``.index`` files, these are not preallocated.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.broker_files.segments.batches import BytesLike

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """One aborted transaction: offset of its first record, of its marker, and the LSO of that moment."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def iter_txnindex(data: BytesLike, *, source: str) -> Iterator[AbortedTxn]:
    """Iterate over the entries lazily, so every entry before an error is yielded.

    Raises ``CorruptLogError`` for an entry of another version, or (``cut``) for a partial last entry.
    """
    view = memoryview(data).cast("B")
    whole = len(view) - len(view) % _ENTRY.size
    for index, (version, *fields) in enumerate(_ENTRY.iter_unpack(view[:whole])):
        if version != _VERSION:
            raise CorruptLogError(source, index * _ENTRY.size, f"unknown entry version {version}")
        yield AbortedTxn(*fields)
    if left := len(view) - whole:
        raise CorruptLogError(source, whole, f"entry is cut: {left} of {_ENTRY.size} bytes", cut=True)


def encode_txnindex(entries: Iterable[AbortedTxn]) -> bytes:
    """Write what ``iter_txnindex`` reads."""
    return b"".join(_ENTRY.pack(_VERSION, *astuple(entry)) for entry in entries)
