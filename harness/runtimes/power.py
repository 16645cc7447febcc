"""Power failures: an agent records a broker's syncs to disk, and the files are cut to their synced lengths.

The agent in the broker's JVM (``java/power/syncs``) writes notes. A note is a line with fields separated by tabs:
``sync SIZE PATH``, ``truncate SIZE PATH``, ``rename FROM TO``, ``remove PATH``. Paths are relative to the data folder,
whose only subfolders are partitions. `nemesis` decides which broker loses its power, and when. A failure follows the
rules of a journaling file system (ext4, XFS) whose page cache is lost:

- **Content** exists up to the length at the last sync of the file. A file that was never synced is empty.
- **Names** do not change. Creations, renamings and deletions are journalled in order, and every sync of any file writes
  the journal (a broker syncs several times a second); without a sync it is written within five seconds. So no directory
  must be synced, and a file whose new name survives has the content of the renamed file. ext4 also writes content
  before a renaming replaces a file (``auto_da_alloc``), which is ignored, as XFS does not.
- **Indexes** (``.index``, ``.timeindex``) do not change. They are mapped, and written in place, so that their synced
  content is unknown. A broker rebuilds them from the log above its recovery point (``LogSegment.recover``).
- **Metadata** (``__cluster_metadata``) is spared: a lost quorum is another fault.

The kernel also writes content without a sync, by default after half a minute, which is ignored as the worst case.
"""

import mmap
import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.errors import HarnessError
from harness.json_codec import to_json
from harness.kafka_api import TopicPartition
from harness.protect.gate.build import AgentSource

SYNC_NOTES: Final = AgentSource("sync notes", "harness.runtimes", "power/syncs", "sync-notes.jar")
"""The agent; its argument is ``LOG=FOLDER``: it records its syncs of files in the folder in the log."""
METADATA_FOLDER: Final = "__cluster_metadata-"
_INDEX: Final = re.compile(r"\.(index|timeindex)(\.\w+)?$")
_LIVE_LOG: Final = re.compile(r"(?P<folder>(?P<topic>[^/]+)-(?P<partition>\d+))/(?P<base>\d{20})\.log(\.swap)?")
"""A segment's log that a broker would load; the logs of a cleaner or a deletion have no additional records."""

Synced = dict[str, int]
"""Synced lengths in bytes, by path. Other files were never synced."""


def why_no_notes() -> str | None:
    """Return the reason why syncs cannot be recorded on this host, or None."""
    return None if sys.platform == "linux" else "syncs are recorded on Linux only"


def begin_notes(log: Path, folder: Path) -> None:
    """Start a log from scratch, with all files in the folder as synced: its storage was formatted long ago."""
    log.write_text("".join(f"sync\t{path.stat().st_size}\t{name}\n" for name, path in files_of(folder)))


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative path and the path of every file below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def read_synced(text: str) -> Synced:
    """Return the synced lengths at the end of the notes. Ignores an incomplete last line.

    Raises `HarnessError` for a malformed line.
    """
    # Lengths by folder (empty, or with a slash at the end) and name: a broker renames folders of thousands of files.
    folders: defaultdict[str, Synced] = defaultdict(dict)
    for number, line in enumerate(text.split("\n")[:-1], 1):
        match line.split("\t"):
            case ["sync", size, path] if size.isdecimal():
                folder, name = _split(path)
                # Concurrent syncs may be recorded in either order.
                folders[folder][name] = max(int(size), folders[folder].get(name, 0))
            case ["truncate", size, path] if size.isdecimal():
                folder, name = _split(path)
                # Content that is written after the truncation is not synced.
                if name in folders[folder]:
                    folders[folder][name] = min(int(size), folders[folder][name])
            case ["rename", before, after]:
                (old_folder, old_name), (folder, name) = _split(before), _split(after)
                folders[folder].pop(name, None)
                if old_name in folders[old_folder]:
                    folders[folder][name] = folders[old_folder].pop(old_name)
                if files := folders.pop(f"{before}/", None):
                    folders[f"{after}/"] |= files
            case ["remove", path]:
                folder, name = _split(path)
                folders[folder].pop(name, None)
            case _:
                raise HarnessError(f"the notes of synced files have a wrong line {number}: {line!r}")
    return {f"{folder}{name}": size for folder, files in folders.items() for name, size in files.items()}


def _split(path: str) -> tuple[str, str]:
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


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


def cut_unsynced(folder: Path, synced: Synced) -> list[Cut]:
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
