"""Power failures: an agent records a broker's syncs to disk, and the files are cut to their synced lengths.

The agent in the broker's JVM (``java/power/syncs``) writes lines with fields separated by tabs: ``sync SIZE PATH``,
``truncate SIZE PATH``, ``rename FROM TO``, ``remove PATH``. Paths are relative to the data folder, whose only
subfolders are partitions. A failure follows the rules of a journaling file system (ext4, XFS) whose page cache is lost:

- **Content** exists up to the length at the last sync of the file; a file that was never synced is empty. The kernel
  also writes content without a sync, by default after half a minute, which is ignored as the worst case.
- **Names** do not change: creations, renamings and deletions are journalled in order, and every sync of any file writes
  the journal. So no directory must be synced, and a file whose new name survives has the content of the renamed file.
- **Indexes** (``.index``, ``.timeindex``) do not change: they are mapped, and written in place. A broker rebuilds them
  from the log above its recovery point (``LogSegment.recover``).
- **Metadata** (``__cluster_metadata``) is spared: a lost quorum is another fault.
"""

import mmap
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.errors import HarnessError
from harness.json_codec import to_json
from harness.kafka_api import TopicPartition
from harness.protect.gate.build import Agent, AgentSource
from harness.runtimes.base import Need, Runtime

SYNC_NOTES: Final = AgentSource("sync notes", "harness.runtimes", "power/syncs", "sync-notes.jar")
"""The agent; its argument is ``LOG=FOLDER``: it records its syncs of files in the folder in the log."""
NOTES: Final = "synced"
METADATA_FOLDER: Final = "__cluster_metadata-"
LOOK_S: Final = 0.001
"""A cleaner's files exist for ten milliseconds."""
WATCH_S: Final = 0.5
_INDEX: Final = re.compile(r"\.(index|timeindex)(\.\w+)?$")
_LIVE_LOG: Final = re.compile(r"(?P<folder>(?P<topic>[^/]+)-(?P<partition>\d+))/(?P<base>\d{20})\.log(\.swap)?")
"""A segment's log that a broker would load; the logs of a cleaner or a deletion have no additional records."""

Synced = dict[str, int]
"""Synced lengths in bytes, by path. Other files were never synced."""


def begin_notes(log: Path, folder: Path) -> None:
    """Start a log from scratch, with all files in the folder as synced: its storage was formatted long ago."""
    log.write_text("".join(f"sync\t{path.stat().st_size}\t{name}\n" for name, path in files_of(folder).items()))


def files_of(folder: Path) -> dict[str, Path]:
    """Return the path of every file below a folder, by its relative path in order."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


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
    files = files_of(folder)
    for name, path in files.items():
        if name.startswith(METADATA_FOLDER) or _INDEX.search(name):
            continue
        to_bytes = synced.get(name, 0)
        with suppress(FileNotFoundError):
            from_bytes = path.stat().st_size
            if from_bytes > to_bytes:
                yield Cut(name, from_bytes, to_bytes, _lost(name, path, to_bytes, files))


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
    first, last, records = lost[0][0], lost[-1][1], sum(count for *_, count in lost)
    return LostRecords(live["topic"], int(live["partition"]), first, last, records, min(later, default=None))


@dataclass(frozen=True)
class LocalFiles:
    """Implements `harness.runtimes.base.PowerSupplies` and `DataFiles` for processes of this machine.

    ``data``: returns the data folder of a broker, which is next to its sync notes. ``agent``: writes them, or None.
    """

    processes: Runtime
    data: Callable[[int], Path]
    agent: Agent | None = None

    def begin_notes(self, brokers: Sequence[int]) -> None:
        """Create the sync notes of brokers that were never started, or just lost their power."""
        for broker in brokers if self.agent else ():
            begin_notes(self._notes(broker), self.data(broker))

    def flags(self, broker: int) -> list[str]:
        """Return the JVM's flags for sync notes, if any."""
        return [] if self.agent is None else [self.agent.flag(f"{self._notes(broker)}={self.data(broker)}")]

    def unsynced(self, broker: int) -> list[Cut]:
        """Compare the files of a broker, which may be running, with its sync notes."""
        return list(find_unsynced(self.data(broker), self._synced(broker)))

    def cut_power(self, broker: int) -> list[Cut]:
        """SIGKILL the broker, and cut its files to their synced lengths."""
        self._raise_without_notes()
        self.processes.kill(broker)
        cuts = cut_unsynced(self.data(broker), self._synced(broker))
        self.begin_notes([broker])
        return cuts

    def kill_with_files(self, broker: int, suffixes: tuple[str, ...]) -> dict[str, int]:
        """Search every millisecond. SIGSTOP the broker if such files seem to exist, then SIGKILL or SIGCONT it."""
        until_s = time.monotonic() + WATCH_S
        while not self._ending(broker, suffixes):
            if time.monotonic() >= until_s:
                return {}
            time.sleep(LOOK_S)
        self.processes.pause(broker)
        if not self._ending(broker, suffixes):
            self.processes.resume(broker)
            return {}
        self.processes.kill(broker)
        return self._ending(broker, suffixes)

    def _notes(self, broker: int) -> Path:
        return self.data(broker).with_name(NOTES)

    def _synced(self, broker: int) -> Synced:
        self._raise_without_notes()
        return read_synced(self._notes(broker).read_text())

    def _raise_without_notes(self) -> None:
        if self.agent is None:
            raise HarnessError(f"the brokers of this run are not {Need.SYNCS}")

    def _ending(self, broker: int, suffixes: tuple[str, ...]) -> dict[str, int]:
        """Return the sizes of the partitions' files with these suffixes, except files that vanish in the meantime."""
        sizes = {}
        for folder in os.scandir(self.data(broker)):
            if not folder.is_dir() or folder.name.startswith(METADATA_FOLDER):
                continue
            with suppress(FileNotFoundError), os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith(suffixes):
                        with suppress(FileNotFoundError):
                            sizes[f"{folder.name}/{file.name}"] = file.stat().st_size
        return sizes
