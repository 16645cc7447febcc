"""A consumer that reads a log from the start, one record at a time, while the log is being compacted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.broker_files.segments.records import Record
    from harness.models.cloud_topics.metastore import Log


@dataclass(frozen=True, slots=True)
class Reader:
    """Its start time, its next offset, and the last record of each key that it has read, sorted by key."""

    began_at_ms: int
    position: int = 0
    latest: tuple[Record, ...] = ()

    def next(self, log: Log) -> Reader:
        """Return the reader after one more record, or at the log's end where none is left.

        Every broker serves the same records: each looks the objects up in the metastore (the post).
        """
        for piece in log.objects:
            if piece.end_offset <= self.position:
                continue
            for record in piece.records():
                if record.offset >= self.position:
                    others = (last for last in self.latest if last.key != record.key)
                    latest = tuple(sorted((*others, record), key=lambda last: last.key or b""))
                    return replace(self, position=record.offset + 1, latest=latest)
        return replace(self, position=log.end_offset)
