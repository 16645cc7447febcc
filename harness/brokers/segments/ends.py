"""The end of a segment, read from the headers of its batches alone."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from harness.brokers.segments.batches import HEADER, LOG_OVERHEAD, MAGIC
from harness.brokers.segments.old_entries import OLD_MAGICS

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = struct.Struct(">qiib")  # base offset, length, leader epoch or CRC, magic: the same in every format
_LAST_OFFSET_DELTA = 6


def end_of_segment(path: Path) -> int:
    """Return the offset after the last whole batch, or the segment's first offset where there is none.

    Stops at bytes that are no batch: the zeros of a preallocated file, a batch that is cut, or damage, which the reader
    of the file reports.
    """
    end = int(path.name.partition(".")[0])
    size_bytes = path.stat().st_size
    position = 0
    with path.open("rb") as file:
        while position + _HEAD.size <= size_bytes:
            file.seek(position)
            header = file.read(HEADER.size)
            base_offset, length, _, magic = _HEAD.unpack_from(header)
            position += LOG_OVERHEAD + length
            if position > size_bytes or length <= 0:
                break
            if magic == MAGIC and len(header) == HEADER.size:
                last_offset_delta = HEADER.unpack(header)[_LAST_OFFSET_DELTA]
                end = base_offset + last_offset_delta + 1
            elif magic in OLD_MAGICS:
                end = base_offset + 1
            else:
                break
    return end
