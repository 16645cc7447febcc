"""What a power failure takes: every file of a killed broker is cut to the length that was synced.

The rule, which is that of a file system with a journal (ext4, XFS) whose page cache is lost:

- **Content** is there up to the length at the last sync of the file. A file that was never synced is empty.
- **Names** stay as they are. Creations, renamings and deletions are journalled in their order, and every sync of any
  file writes the journal (a broker syncs several times a second); without one it is written within five seconds. So
  no directory has to be synced, and a file whose new name survives has the content of the file that was renamed. That
  ext4 also writes content before it replaces a file by a renaming (``auto_da_alloc``) does not count: XFS does not.
- **Indexes** (``.index``, ``.timeindex``) stay as they are. They are mapped, and written in place, so that no length
  says what of them was synced. A broker rebuilds them from the log above its recovery point (``LogSegment.recover``).
- **Metadata** (``__cluster_metadata``) is spared: a lost quorum is another fault.

The kernel writes content without a sync, too, by default after half a minute. That does not count either: the rule is
the worst that a disk may do.
"""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.runtimes.power.sync_log import files_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from harness.kafka_api.messages import TopicPartition
    from harness.runtimes.power.sync_log import Synced

METADATA_FOLDER: Final = "__cluster_metadata-"
_INDEX: Final = re.compile(r"\.(index|timeindex)(\.\w+)?$")
_LIVE_LOG: Final = re.compile(r"(?P<folder>(?P<topic>[^/]+)-(?P<partition>\d+))/(?P<base>\d{20})\.log(\.swap)?")
"""A segment's log that a broker would load; those of a cleaner or a deletion have no records of their own."""


@dataclass(frozen=True)
class LostRecords:
    """The batches of a segment that are lost, in whole or in part, from the first offset to the last one.

    ``next_segment``: the base offset of the segment that follows in the folder; None for the last one. A broker that
    finds the file of a later segment goes on there, and does not ask for what is lost before it.
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
    """A file that is longer than what was synced of it; ``file``: its path in the data folder.

    ``lost``: the records, where the file is a segment of a log.
    """

    file: str
    from_bytes: int
    to_bytes: int
    lost: LostRecords | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it, in one object."""
        own = {"file": self.file, "from_bytes": self.from_bytes, "to_bytes": self.to_bytes}
        lost = {} if self.lost is None else asdict(self.lost)
        return {**own, **{name: value for name, value in lost.items() if value is not None}}


def find_unsynced(folder: Path, synced: Synced) -> Iterator[Cut]:
    """Yield the files that a power failure would cut, in order. Files that vanish meanwhile are left out."""
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
    """Cut off what was not synced, of a broker that is down, and return it."""
    cuts = list(find_unsynced(folder, synced))
    for one in cuts:
        os.truncate(folder / one.file, one.to_bytes)
    return cuts


def _lost(name: str, path: Path, to_bytes: int, files: Collection[str]) -> LostRecords | None:
    """Return which batches of a segment end beyond a length; None where no whole one does, and for other files."""
    live = _LIVE_LOG.fullmatch(name)
    if live is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # The last one is cut where a broker is appending.
        batches = until_cut(iter_batches(content, source=path.name, verify_crc=False))
        lost = [
            (one.base_offset, one.last_offset, one.record_count)
            for one in batches
            if one.position + one.size_bytes > to_bytes
        ]
        # Views of the content must not outlive it.
        del batches
    if not lost:
        return None
    others = (one for file in files if (one := _LIVE_LOG.fullmatch(file)) and one["folder"] == live["folder"])
    later = [base for one in others if (base := int(one["base"])) > int(live["base"])]
    return LostRecords(
        live["topic"],
        int(live["partition"]),
        lost[0][0],
        lost[-1][1],
        sum(count for *_, count in lost),
        min(later, default=None),
    )
