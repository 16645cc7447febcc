"""Record batches, from a segment file or from the records of a Fetch response.

The layout of magic 2 is ``DefaultRecordBatch`` of Kafka's clients; all integers are big-endian. This is the reference
reader: ``blocks`` is faster, and calls this module for the error messages. Entries of the formats before magic 2
(``LegacyRecord``), which brokers before 0.11 wrote, are recognized, checked and counted, but not read. They have
neither transactions nor delete horizons.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from mmap import mmap
from typing import Any, Final, Literal, TypeAlias, TypeVar
from zlib import crc32

from crc32c import crc32c

from harness.broker_files.segments.codecs import CODECS, Codec, decompress
from harness.broker_files.segments.records import MAX_INT64, Marker, Record, read_marker, read_record
from harness.errors import HarnessError, raised_as

BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap

__all__ = ["Batch", "CorruptLogError", "Marker", "Record", "iter_batches", "iter_entries", "iter_records", "marker"]

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, crc32c, attributes, last offset delta, base timestamp, max
timestamp, producer id, producer epoch, base sequence, record count: 61 bytes."""

MAGIC: Final = 2
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and length, which ``length`` does not count (Records.LOG_OVERHEAD)."""
CRC_FROM: Final = 21
"""The CRC covers everything after itself: not the base offset and leader epoch, which brokers rewrite."""

OLD_MAGICS: Final = (0, 1)
LEAST_BYTES: Final = (26, 34)
"""The smallest size by old magic, with offset and length (``LegacyRecord.RECORD_OVERHEAD_V0`` and ``_V1``)."""
OLD_CRC_FROM: Final = 16
"""The CRC of an old entry covers the bytes from the magic on."""

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""A larger length is corrupt, as no topic allows messages of nearly this size."""

CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

HEAD: Final = struct.Struct(">qiIb")  # offset, length, crc32 (in magic 2 the leader epoch), magic
_MAGIC_AT = 16
_ZERO_CHUNK_BYTES = 1 << 20

DIGEST_MODULUS: Final = 65_521

T = TypeVar("T")


class CorruptLogError(HarnessError):
    """Bytes that no broker writes, or (``cut``) an entry that ends before its announced length.

    ``position`` is a byte offset in ``source``. A cut is normal at the end of a Fetch response or of a
    file copied while the broker was appending; anything else is corruption.
    """

    def __init__(self, source: str, position: int, reason: str, *, cut: bool = False) -> None:
        super().__init__(f"{source} at byte {position}: {reason}")
        self.source, self.position, self.reason, self.cut = source, position, reason, cut


def until_cut(parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts of a file before the place where it is cut, without an error."""
    try:
        yield from parts
    except CorruptLogError as error:
        if not error.cut:
            raise


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch as stored, with packed records.

    ``timestamp_base_ms`` is the raw header field to which the records' timestamps are relative: the first record's
    timestamp (-1: none), or the delete horizon that the cleaner has set (attribute bit 6, for batches with tombstones
    or a marker).
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    timestamp_base_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: memoryview = field(repr=False)
    """The bytes after the header, still compressed: a view that keeps its source alive."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may remove this batch's tombstones or marker, or None."""
        return self.timestamp_base_ms if self.attributes & DELETE_HORIZON else None

    @property
    def is_transactional(self) -> bool:
        """True for data of a transaction and for its marker."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True for a transaction marker, also if compaction has emptied the batch."""
        return bool(self.attributes & CONTROL)

    @property
    def codec(self) -> Codec:
        """The compression of the payload."""
        return CODECS[self.attributes & CODEC_MASK]

    @property
    def timestamp_type(self) -> Literal["create", "append"]:
        """The source of the timestamps: the producer for each record, or the broker for the batch."""
        return "append" if self.attributes & APPEND_TIME else "create"

    @property
    def is_empty(self) -> bool:
        """True if compaction removed every record, and kept the header for the producer's sequence numbers."""
        return self.record_count == 0


@dataclass(frozen=True, slots=True)
class OldEntry:
    """One record, or several compressed ones; ``last_offset``: of the last record."""

    position: int
    size_bytes: int
    last_offset: int
    magic: int


def iter_batches(buffer: BytesLike, *, source: str, verify_crc: bool = True, start: int = 0) -> Iterator[Batch]:
    """Iterate over the batches from byte 0 as ``iter_entries``, without entries of older formats."""
    entries = iter_entries(buffer, source=source, verify_crc=verify_crc, start=start)
    return (entry for entry in entries if isinstance(entry, Batch))


def iter_entries(
    buffer: BytesLike, *, source: str, verify_crc: bool = True, start: int = 0, previous_offset: int = -1,
    is_last: bool = True,
) -> Iterator[Batch | OldEntry]:  # fmt: skip
    """Iterate lazily over all entries from byte 0, so that the entries before an error are yielded.

    An all-zero tail (``log.preallocate``) is the end of the log if the buffer is its last segment; a broker trims other
    segments (``LogSegment.onBecomeInactiveSegment``). The tail must include a complete length field: fewer zeros may be
    the start of a cut batch with a small base offset. For a buffer from the middle of a source, ``start`` is its
    position in the source and ``previous_offset`` the last offset before it. Raises ``CorruptLogError`` at the first
    batch that is cut or that no broker writes, also for a base offset that does not rise: no CRC covers that field.
    """
    view = memoryview(buffer).cast("B").toreadonly()
    at = 0
    while at < len(view):
        position = start + at
        size = _entry_size(view[at:], position, source, is_last=is_last)
        if size is None:
            return
        read = _batch if view[at + _MAGIC_AT] == MAGIC else _old_entry
        entry: Batch | OldEntry = read(view[at : at + size], position, source, verify_crc=verify_crc)
        base_offset = entry.base_offset if isinstance(entry, Batch) else entry.last_offset
        if base_offset <= previous_offset:
            raise CorruptLogError(source, position, f"base offset {base_offset} follows offset {previous_offset}")
        yield entry
        previous_offset = entry.last_offset
        at += size


def _entry_size(view: memoryview, position: int, source: str, *, is_last: bool) -> int | None:
    """Return the size in bytes of the complete entry at the start of ``view``; None at the zero tail."""
    available = len(view)
    if available < LOG_OVERHEAD:
        reason = f"batch is cut: {available} bytes of a {HEADER.size}-byte header"
        raise CorruptLogError(source, position, reason, cut=True)
    length = int.from_bytes(view[8:LOG_OVERHEAD], signed=True)
    if length == 0 and is_last and _all_zero(view):
        return None
    magic = view[_MAGIC_AT] if available > _MAGIC_AT else 0
    if magic != MAGIC and magic not in OLD_MAGICS:
        raise CorruptLogError(source, position, f"magic {magic}: only magic 0, 1 and 2 are known")
    size = LOG_OVERHEAD + length
    if not (HEADER.size if magic == MAGIC else LEAST_BYTES[magic]) <= size <= MAX_BATCH_BYTES:
        raise CorruptLogError(source, position, f"impossible length {length}")
    if available < size:
        raise CorruptLogError(source, position, f"batch is cut: {available} of {size} bytes", cut=True)
    return size


def _all_zero(view: memoryview) -> bool:
    chunks = range(0, len(view), _ZERO_CHUNK_BYTES)
    return not any(view[at : at + _ZERO_CHUNK_BYTES].tobytes().strip(b"\0") for at in chunks)


def _old_entry(view: memoryview, position: int, source: str, *, verify_crc: bool) -> OldEntry:
    last_offset, _, crc, magic = HEAD.unpack_from(view)
    if verify_crc and (computed := crc32(view[OLD_CRC_FROM:])) != crc:
        reason = f"CRC of an entry of magic {magic} is {computed:08x}, it says {crc:08x}"
        raise CorruptLogError(source, position, reason)
    return OldEntry(position, len(view), last_offset, magic)


def _batch(view: memoryview, position: int, source: str, *, verify_crc: bool) -> Batch:
    base_offset, _, epoch, _, crc, attributes, last_offset_delta, *others, record_count = HEADER.unpack_from(view)
    if verify_crc and (computed := crc32c(view[CRC_FROM:])) != crc:
        raise CorruptLogError(source, position, f"CRC is {computed:08x}, the header says {crc:08x}")
    if last_offset_delta < 0 or base_offset + last_offset_delta > MAX_INT64:
        raise CorruptLogError(source, position, f"impossible last offset delta {last_offset_delta}")
    if not 0 <= record_count <= last_offset_delta + 1:
        reason = f"impossible record count {record_count} in {last_offset_delta + 1} offsets"
        raise CorruptLogError(source, position, reason)
    if attributes & CODEC_MASK >= len(CODECS):
        raise CorruptLogError(source, position, f"unknown codec {attributes & CODEC_MASK}")
    head = (position, len(view), base_offset, base_offset + last_offset_delta, epoch, crc, attributes)
    values: tuple[Any, ...] = (*head, *others, record_count, view[HEADER.size :])
    return Batch(*values)


def iter_records(batch: Batch, *, source: str) -> Iterator[Record]:
    """Decompress a batch's records, and yield them in offset order.

    Raises ``CorruptLogError`` for a payload that does not decompress or is too large, and for malformed records.
    """
    try:
        data = decompress(batch.codec, batch.payload)
    except ValueError as error:
        raise CorruptLogError(source, batch.position, str(error)) from error
    append_time_ms = batch.max_timestamp_ms if batch.attributes & APPEND_TIME else None
    position, previous_offset = 0, batch.base_offset - 1
    for index in range(batch.record_count):
        try:
            record, position = read_record(data, position, batch.base_offset, batch.timestamp_base_ms, append_time_ms)
            if not previous_offset < record.offset <= batch.last_offset:
                raise ValueError(f"offset {record.offset} out of order")  # noqa: TRY301
        except (IndexError, ValueError) as error:
            problem = "the batch ends inside it" if isinstance(error, IndexError) else error
            reason = f"record {index + 1} of {batch.record_count}: {problem}"
            raise CorruptLogError(source, batch.position, reason) from error
        yield record
        previous_offset = record.offset
    if position != len(data):
        reason = f"{len(data) - position} bytes follow the last of {batch.record_count} records"
        raise CorruptLogError(source, batch.position, reason)


def marker(batch: Batch, *, source: str) -> Marker | None:
    """Read the marker of a control batch; None for data, and for an emptied control batch. Raises as `iter_records`."""
    if not batch.is_control or batch.is_empty:
        return None
    record = next(iter_records(batch, source=source))
    with raised_as(partial(CorruptLogError, source, batch.position), "malformed control record", ValueError):
        return read_marker(record)


def batch_digest(base_offset: int, crc: int) -> int:
    """Return one batch's share of a log's digest, which is the exclusive or of all shares.

    The order does not matter, and nothing overflows 63 bits, so that SQL computes the same digest without sorting.
    """
    return crc * (base_offset % DIGEST_MODULUS + 1)
