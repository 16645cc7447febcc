"""Writes a replica's log to a folder of files: whole batches as the broker served them, in files of bounded size."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from harness.broker_files.segments.batches import LOG_OVERHEAD, MAGIC, CorruptLogError
from harness.errors import HarnessError
from harness.run_folder.store import MIN_FREE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 256 << 20

_ENTRY = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: the part of the header that has the same layout in all magics."""
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
LEAST_LENGTH = 14
"""Of an entry of magic 0: CRC, magic, attributes, and two empty fields (``LegacyRecord``)."""


class SpoolDiskError(HarnessError):
    """The disk that the audit writes to is full."""


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One batch in a Fetch answer; in the old magics 0 and 1, one message, or a wrapper of several."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def whole_entries(records: bytes, source: str) -> Iterator[BatchEntry]:
    """Return the complete batches of a Fetch answer, which may end inside a batch. Their content is not parsed.

    The offset of a wrapper of magic 0 or 1 is that of its last message. Raises `CorruptLogError`.
    """
    position = 0
    while position + _ENTRY.size <= len(records):
        base_offset, length, _, magic = _ENTRY.unpack_from(records, position)
        size_bytes = LOG_OVERHEAD + length
        if length < LEAST_LENGTH:
            raise CorruptLogError(source, position, f"impossible length {length}")
        if position + size_bytes > len(records):
            return
        delta = 0
        if magic >= MAGIC:
            if size_bytes < _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size:
                raise CorruptLogError(source, position, f"impossible length {length}")
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)
        if base_offset < 0 or delta < 0:
            raise CorruptLogError(source, position, f"impossible offsets: {base_offset} and {delta} more")
        yield BatchEntry(position, size_bytes, base_offset, base_offset + delta)
        position += size_bytes


class Pieces:
    """Writes one replica's batches to ``<20-digit base offset>.log`` files of at most ``piece_bytes``.

    A file is larger only where a single answer is.
    """

    def __init__(self, folder: Path, piece_bytes: int = PIECE_BYTES) -> None:
        """Make the folder. Raises `HarnessError` where it has files of an earlier reading."""
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.log")):
            raise HarnessError(f"{folder} holds a replica already")
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._file: IO[bytes] | None = None
        self._size_bytes = 0

    def write(self, base_offset: int, batches: memoryview) -> None:
        """Append whole batches; ``base_offset`` is that of the first. Raises `SpoolDiskError`."""
        raise_if_full(self._folder, len(batches))
        try:
            if self._file is None or self._size_bytes + len(batches) > self._piece_bytes:
                self.close()
                self._file = (self._folder / f"{base_offset:020}.log").open("xb")
                self._size_bytes = 0
            self._file.write(batches)
        except OSError as error:
            raise SpoolDiskError(f"{self._folder} cannot be written: {error}") from error
        self._size_bytes += len(batches)

    def close(self) -> None:
        """Close the current file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def raise_if_full(folder: Path, size_bytes: int) -> None:
    """Raise `SpoolDiskError` where ``size_bytes`` more would leave less than `MIN_FREE_BYTES` on the folder's disk."""
    usage = os.statvfs(folder)
    free_bytes = usage.f_bavail * usage.f_frsize
    if free_bytes - size_bytes < MIN_FREE_BYTES:
        raise SpoolDiskError(
            f"the disk of {folder} has {free_bytes >> 20} MiB left; reading takes {size_bytes >> 20} MiB more,"
            f" and {MIN_FREE_BYTES >> 20} MiB stay free"
        )
