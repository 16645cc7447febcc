"""The synced lengths of a broker's files, by the notes of an agent in the broker's JVM.

A note is a line with fields separated by tabs: ``sync SIZE PATH``, ``truncate SIZE PATH``, ``rename FROM TO``, ``remove
PATH``, written by ``java/power/syncs/Notes.java``. Paths are relative to the data folder, whose only subfolders are
partitions.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.errors import HarnessError
from harness.protect.gate.build import AgentSource, build_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from harness.host.java import Java
    from harness.protect.gate.build import Agent
    from harness.targets.jars import OnProgress

SYNC_NOTES: Final = AgentSource("sync notes", "harness.runtimes.power", "power/syncs", "sync-notes.jar")

Synced = dict[str, int]
"""Synced lengths in bytes, by path. Other files were never synced."""


def why_impossible() -> str | None:
    """Return the reason why syncs cannot be recorded on this host, or None."""
    return None if sys.platform == "linux" else "syncs are recorded on Linux only"


def build(java: Java, on_progress: OnProgress) -> Agent:
    """Return the agent, compiled if needed. Raises as `build_agent` does."""
    return build_agent(java, on_progress, SYNC_NOTES)


def flag(agent: Agent, log: Path, folder: Path) -> str:
    """Return the flag of a JVM that records its syncs of files in ``folder`` in ``log``."""
    return agent.flag(f"{log}={folder}")


def begin(log: Path, folder: Path) -> None:
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
    folders: _Folders = defaultdict(dict)
    for number, line in enumerate(text[: text.rfind("\n") + 1].split("\n")[:-1], 1):
        kind, *fields = line.split("\t")
        try:
            _KINDS[kind](folders, *fields)
        except (KeyError, TypeError, ValueError) as error:
            raise HarnessError(f"the notes of synced files have a wrong line {number}: {line!r}") from error
    return {f"{folder}{name}": size for folder, files in folders.items() for name, size in files.items()}


_Folders: TypeAlias = "defaultdict[str, dict[str, int]]"
"""Lengths by folder (empty, or with a slash at the end) and name: a broker renames folders of thousands of files."""


def _split(path: str) -> tuple[str, str]:
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


def _sync(folders: _Folders, size: str, path: str) -> None:
    folder, name = _split(path)
    # Concurrent syncs may be recorded in either order.
    folders[folder][name] = max(int(size), folders[folder].get(name, 0))


def _truncate(folders: _Folders, size: str, path: str) -> None:
    """Reduce the synced length to the truncated one, as content written afterwards is not synced."""
    folder, name = _split(path)
    if name in folders[folder]:
        folders[folder][name] = min(int(size), folders[folder][name])


def _rename(folders: _Folders, before: str, after: str) -> None:
    """Move a file, or a folder of files. A file with the new name is replaced."""
    (old_folder, old_name), (folder, name) = _split(before), _split(after)
    folders[folder].pop(name, None)
    if old_name in folders[old_folder]:
        folders[folder][name] = folders[old_folder].pop(old_name)
    if files := folders.pop(f"{before}/", None):
        folders[f"{after}/"] |= files


def _remove(folders: _Folders, path: str) -> None:
    folder, name = _split(path)
    folders[folder].pop(name, None)


_KINDS: Final[Mapping[str, Callable[..., None]]] = {
    function.__name__.lstrip("_"): function for function in (_sync, _truncate, _rename, _remove)
}
