"""The segment files of copies of any size, and their distribution over Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from checkers.evidence.tables import Place
    from harness.broker_files.copies.copies import Copies

_BOUNDS = ("log_start", "bound", "shortest", "log_end")
NO_BOUNDS: Final = dict.fromkeys(_BOUNDS[1:], 2**63 - 1)
"""For logs whose ends are not yet computed: every batch is read and compared."""


@dataclass(frozen=True)
class SegmentFile:
    """A segment of a replica. ``is_last``: whether it is the log's last one, which its broker may append to."""

    run: str
    broker: int
    topic: str
    partition: int
    path: Path
    size_bytes: int
    is_last: bool
    log_start: int
    bound: int
    shortest: int
    base_offset: int
    log_end: int
    """Batches from this offset on were never replicated and are left out."""

    @property
    def place(self) -> Place:
        """The partition of the segment."""
        return self.run, self.topic, self.partition


def segment_files(copies: Sequence[Copies], facts: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> list[SegmentFile]:
    """Return the files of all replicas. ``facts``: log_start, bound, shortest and log_end, by `REPLICA_PLACE`."""
    return [
        SegmentFile(
            run=cluster.run_id,
            broker=copy.broker,
            topic=copy.topic,
            partition=copy.partition,
            path=path,
            size_bytes=path.stat().st_size,
            is_last=segment is copy.segments[-1],
            base_offset=segment.base_offset,
            **{name: facts[cluster.run_id, *copy.place, copy.broker][name] for name in _BOUNDS},
        )
        for cluster in copies
        for copy in cluster.replicas
        for segment, path in zip(copy.segments, copy.logs, strict=True)
    ]


def shares(segments: Sequence[SegmentFile], task_bytes: int) -> list[list[int]]:
    """Distribute indexes of files over tasks of about ``task_bytes``, the biggest file first; no file is split."""
    tasks: list[list[int]] = []
    room = 0
    for index in sorted(range(len(segments)), key=lambda index: -segments[index].size_bytes):
        if room < segments[index].size_bytes or not tasks:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(index)
        room -= segments[index].size_bytes
    return tasks
