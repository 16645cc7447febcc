"""``.txnindex`` files: an entry for each aborted transaction on this broker.

The layout is ``AbortedTxn``; a broker appends entries in the order of the ABORT markers (``TransactionIndex``). Unlike
``.index`` files, these files are not preallocated.
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
    """One aborted transaction: the offsets of its first record and its marker, and the LSO at that time."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def iter_txnindex(data: BytesLike, *, source: str) -> Iterator[AbortedTxn]:
    """Iterate lazily over the entries, so that the entries before an error are yielded.

    Raises ``CorruptLogError`` for an entry of another version, or (``cut``) for a partial last entry.
    """
    view = memoryview(data).cast("B")
    complete_bytes = len(view) - len(view) % _ENTRY.size
    for index, (version, *fields) in enumerate(_ENTRY.iter_unpack(view[:complete_bytes])):
        if version != _VERSION:
            raise CorruptLogError(source, index * _ENTRY.size, f"unknown entry version {version}")
        yield AbortedTxn(*fields)
    if rest := len(view) - complete_bytes:
        raise CorruptLogError(source, complete_bytes, f"entry is cut: {rest} of {_ENTRY.size} bytes", cut=True)


def encode_txnindex(entries: Iterable[AbortedTxn]) -> bytes:
    """Encode entries for ``iter_txnindex``."""
    return b"".join(_ENTRY.pack(_VERSION, *astuple(entry)) for entry in entries)
