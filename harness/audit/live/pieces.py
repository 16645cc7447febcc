"""The files that one replica's batches are written to."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import HarnessError
from harness.run_folder.store import MIN_FREE_BYTES

PIECE_BYTES = 256 << 20


class SpoolDiskError(HarnessError):
    """The disk that the audit writes to is full."""


class Pieces:
    """Writes one replica's batches to ``<20-digit base offset>.log`` files of at most ``piece_bytes``.

    A file is larger only where a single answer is. No file stays open: thousands of replicas are read at a time.
    """

    def __init__(self, folder: Path, piece_bytes: int = PIECE_BYTES) -> None:
        """Make the folder. Raises `HarnessError` where it has files of an earlier reading."""
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.log")):
            raise HarnessError(f"{folder} contains a replica already")
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._path: Path | None = None
        self._size_bytes = 0

    def write(self, base_offset: int, batches: memoryview) -> None:
        """Append whole batches that begin at ``base_offset``. Raises `SpoolDiskError`."""
        raise_if_full(self._folder, len(batches))
        if self._path is None or self._size_bytes + len(batches) > self._piece_bytes:
            self._path, self._size_bytes = self._folder / f"{base_offset:020}.log", 0
        try:
            with self._path.open("ab") as file:
                file.write(batches)
        except OSError as error:
            raise SpoolDiskError(f"{self._folder} cannot be written: {error}") from error
        self._size_bytes += len(batches)


def raise_if_full(folder: Path, size_bytes: int) -> None:
    """Raise `SpoolDiskError` where ``size_bytes`` more would leave less than `MIN_FREE_BYTES` on the folder's disk."""
    usage = os.statvfs(folder)
    free_bytes = usage.f_bavail * usage.f_frsize
    if free_bytes - size_bytes < MIN_FREE_BYTES:
        raise SpoolDiskError(
            f"the disk of {folder} has {free_bytes >> 20} MiB left; reading takes {size_bytes >> 20} MiB more,"
            f" and {MIN_FREE_BYTES >> 20} MiB stay free"
        )
