"""The batches in a Fetch answer, by their headers."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.broker_files.segments.batches import LOG_OVERHEAD, MAGIC, CorruptLogError

_ENTRY = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: the part of the header that has the same layout in all magics."""
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
LEAST_LENGTH = 14
"""Of an entry of magic 0: CRC, magic, attributes, and two empty fields (``LegacyRecord``)."""


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One batch in a Fetch answer; in the old magics 0 and 1, one message, or a wrapper of several."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def complete_entries(records: bytes, source: str) -> Iterator[BatchEntry]:
    """Return the complete batches of a Fetch answer, which may end inside a batch. Their content is not parsed.

    A wrapper of magic 0 or 1 has the offset of its last message. Raises `CorruptLogError`.
    """
    position = 0
    while position + _ENTRY.size <= len(records):
        base_offset, length, _, magic = _ENTRY.unpack_from(records, position)
        size_bytes = LOG_OVERHEAD + length
        least_length = LEAST_LENGTH if magic < MAGIC else _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size - LOG_OVERHEAD
        if length < least_length:
            raise CorruptLogError(source, position, f"impossible length {length}")
        if position + size_bytes > len(records):
            return
        delta = 0 if magic < MAGIC else _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)[0]
        if base_offset < 0 or delta < 0:
            raise CorruptLogError(source, position, f"impossible offsets: {base_offset} and {delta} more")
        yield BatchEntry(position, size_bytes, base_offset, base_offset + delta)
        position += size_bytes
