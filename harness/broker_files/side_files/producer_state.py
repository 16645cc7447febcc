"""Files in which a broker keeps the state of producers next to a log: ``.snapshot`` and ``.txnindex``.

A ``.snapshot`` has this broker's state of each producer up to the offset in the file's name; the layout is version 1 of
``PRODUCER_SNAPSHOT_ENTRY_SCHEMA`` of ``ProducerStateManager``. A ``.txnindex`` has an ``AbortedTxn`` for each aborted
transaction on this broker; a broker appends entries in the order of the ABORT markers (``TransactionIndex``). Unlike
``.index`` files, these files are not preallocated.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from crc32c import crc32c

from harness.broker_files.segments.batches import BytesLike, CorruptLogError

_VERSION, _ABORTED_VERSION = 1, 0
_HEADER = struct.Struct(">hIi")  # version, crc32c, entry count
_CRC_AT, _CRC_FROM = 2, 6
_ENTRY = struct.Struct(">qhiqiqiq")
_ABORTED = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer id: its last batch, and the start of its open transaction, or None.

    ``offset_delta`` is the last batch's last minus its first offset. Missing offsets, sequences and epochs are -1.
    """

    producer_id: int
    producer_epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int | None = None


def read_producer_snapshot(data: BytesLike, *, source: str) -> list[ProducerEntry]:
    """Return the entries of a file in order. The CRC covers the file from the count to its end.

    Raises ``CorruptLogError`` for a file that is too short (``cut``) or long, another version, and a bad CRC.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size:
        raise CorruptLogError(source, 0, f"header is cut: {len(view)} of {_HEADER.size} bytes", cut=True)
    version, crc, count = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise CorruptLogError(source, 0, f"unknown snapshot version {version}")
    size = _HEADER.size + count * _ENTRY.size
    if count >= 0 and len(view) < size:
        raise CorruptLogError(source, len(view), f"snapshot is cut: {len(view)} of {size} bytes", cut=True)
    if (computed := crc32c(view[_CRC_FROM:])) != crc:
        raise CorruptLogError(source, _CRC_AT, f"CRC is {computed:08x}, the header says {crc:08x}")
    if len(view) != size:
        raise CorruptLogError(source, _CRC_FROM, f"{count} entries do not fill {len(view)} bytes")
    entries = (ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(view[_HEADER.size :]))
    return [replace(e, current_txn_first_offset=None) if e.current_txn_first_offset == -1 else e for e in entries]


def encode_producer_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Encode entries for ``read_producer_snapshot``."""
    covered = struct.pack(">i", len(entries))
    for entry in entries:
        *fields, open_from = astuple(entry)
        covered += _ENTRY.pack(*fields, -1 if open_from is None else open_from)
    return struct.pack(">hI", _VERSION, crc32c(covered)) + covered


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
    complete_bytes = len(view) - len(view) % _ABORTED.size
    for index, (version, *fields) in enumerate(_ABORTED.iter_unpack(view[:complete_bytes])):
        if version != _ABORTED_VERSION:
            raise CorruptLogError(source, index * _ABORTED.size, f"unknown entry version {version}")
        yield AbortedTxn(*fields)
    if rest := len(view) - complete_bytes:
        raise CorruptLogError(source, complete_bytes, f"entry is cut: {rest} of {_ABORTED.size} bytes", cut=True)


def encode_txnindex(entries: Iterable[AbortedTxn]) -> bytes:
    """Encode entries for ``iter_txnindex``."""
    return b"".join(_ABORTED.pack(_ABORTED_VERSION, *astuple(entry)) for entry in entries)
