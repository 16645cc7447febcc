"""Parts of replicas' logs that executors store: rows of a table, with the paths that readers of segments open."""

import io
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Final, Self, TypeGuard

from pyspark.sql import SparkSession

STORED_SEGMENTS: Final = "stored_segments"
"""A view of the session with the columns ``number`` and ``data``, which are whole batches."""


@dataclass(frozen=True)
class StoredSegment:
    """A row of `STORED_SEGMENTS`, with the part of `pathlib.Path` that readers of segments use.

    Only the driver can open it without its ``data``. ``name``: for messages.
    """

    number: int
    name: str
    size_bytes: int
    data: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name

    def with_data(self, data: bytes) -> Self:
        """Return a path that every process can open."""
        return replace(self, data=data)

    def stat(self) -> SimpleNamespace:
        """Return the size, as ``st_size``."""
        return SimpleNamespace(st_size=self.size_bytes)

    def read_bytes(self) -> bytes:
        """Return the data; without them, ask the executors for them."""
        if self.data is not None:
            return self.data
        rows = SparkSession.active().table(STORED_SEGMENTS).where(f"number = {self.number}").select("data").collect()
        return bytes(rows[0]["data"])

    def open(self, _mode: str = "rb", buffering: int = -1) -> io.BytesIO:  # noqa: ARG002  (as a path's)
        """Return the data as a file that is open for reading."""
        return io.BytesIO(self.read_bytes())


def is_stored(path: object) -> TypeGuard[StoredSegment]:
    """Return whether this is the path of a stored segment."""
    return isinstance(path, StoredSegment)
