"""Simulate a power failure: cut every file of a killed broker to its synced length.

The rules are those of a journaling file system (ext4, XFS) whose page cache is lost:

- **Content** exists up to the length at the last sync of the file. A file that was never synced is empty.
- **Names** do not change. Creations, renamings and deletions are journalled in order, and every sync of any file writes
  the journal (a broker syncs several times a second); without a sync it is written within five seconds. So no directory
  must be synced, and a file whose new name survives has the content of the renamed file. ext4 also writes content
  before a renaming replaces a file (``auto_da_alloc``), which is ignored, as XFS does not.
- **Indexes** (``.index``, ``.timeindex``) do not change. They are mapped, and written in place, so that their synced
  content is unknown. A broker rebuilds them from the log above its recovery point (``LogSegment.recover``).
- **Metadata** (``__cluster_metadata``) is spared: a lost quorum is another fault.

The kernel also writes content without a sync, by default after half a minute, which is ignored: the rules are the worst
case.
"""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.json_codec import to_json
from harness.runtimes.power.sync_notes import files_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from harness.kafka_api.messages import TopicPartition
    from harness.runtimes.power.sync_notes import Synced

METADATA_FOLDER: Final = "__cluster_metadata-"
_INDEX: Final = re.compile(r"\.(index|timeindex)(\.\w+)?$")
_LIVE_LOG: Final = re.compile(r"(?P<folder>(?P<topic>[^/]+)-(?P<partition>\d+))/(?P<base>\d{20})\.log(\.swap)?")
"""A segment's log that a broker would load; the logs of a cleaner or a deletion have no additional records."""


@dataclass(frozen=True)
class LostRecords:
    """The batches of a segment that are lost completely or in part, from the first to the last offset.

    ``next_segment``: the base offset of the next segment in the folder, or None. A broker with a later segment
    continues there, and does not fetch the lost records before it.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    next_segment: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class Cut:
    """A file that is longer than its synced length. ``file``: its path in the data folder. ``lost``: of a segment."""

    file: str
    from_bytes: int
    to_bytes: int
    lost: LostRecords | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the form of ``history.jsonl``: one object."""
        fields = to_json(self)
        lost = fields.pop("lost", {})
        return {**fields, **lost}


def find_unsynced(folder: Path, synced: Synced) -> Iterator[Cut]:
    """Yield the files that a power failure would cut, in order, except files that vanish in the meantime."""
    files = dict(files_of(folder))
    for name, path in files.items():
        if name.startswith(METADATA_FOLDER) or _INDEX.search(name):
            continue
        to_bytes = synced.get(name, 0)
        try:
            from_bytes = path.stat().st_size
            if from_bytes > to_bytes:
                yield Cut(name, from_bytes, to_bytes, _lost(name, path, to_bytes, files))
        except FileNotFoundError:
            continue


def cut(folder: Path, synced: Synced) -> list[Cut]:
    """Cut the files of a broker that is down to their synced lengths; return the cuts."""
    cuts = list(find_unsynced(folder, synced))
    for file_cut in cuts:
        os.truncate(folder / file_cut.file, file_cut.to_bytes)
    return cuts


def _lost(name: str, path: Path, to_bytes: int, files: Collection[str]) -> LostRecords | None:
    """Return the batches of a segment that end beyond a length; None without such batches, and for other files."""
    live = _LIVE_LOG.fullmatch(name)
    if live is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # The last batch may be incomplete, if a broker is appending.
        batches = until_cut(iter_batches(content, source=path.name, verify_crc=False))
        lost = [
            (batch.base_offset, batch.last_offset, batch.record_count)
            for batch in batches
            if batch.position + batch.size_bytes > to_bytes
        ]
        # Views of the content must not outlive it.
        del batches
    if not lost:
        return None
    others = (match for file in files if (match := _LIVE_LOG.fullmatch(file)) and match["folder"] == live["folder"])
    later = [base for match in others if (base := int(match["base"])) > int(live["base"])]
    return LostRecords(
        live["topic"],
        int(live["partition"]),
        lost[0][0],
        lost[-1][1],
        sum(count for *_, count in lost),
        min(later, default=None),
    )
