"""What a broker has synced of its files, by the notes that it wrote as it went on.

A note is a line, its fields separated by tabs: ``sync SIZE PATH``, ``truncate SIZE PATH``, ``rename FROM TO``, ``remove
PATH``; paths are relative to the data folder. ``java/power/syncs/Notes.java`` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Synced = dict[str, int]
"""The length that was synced, in bytes, by path. A file that is not there was never synced."""

_SYNC, _TRUNCATE, _RENAME, _REMOVE = "sync", "truncate", "rename", "remove"


def sync_line(path: str, size_bytes: int) -> str:
    """Return the note that a file was synced."""
    return f"{_SYNC}\t{size_bytes}\t{path}\n"


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder, with its path relative to it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def read_synced(text: str) -> Synced:
    """Return what was synced by the end of the notes. A last line that is not complete was never written.

    Raises `HarnessError` for what is no note.
    """
    synced: Synced = {}
    for number, line in enumerate(text[: text.rfind("\n") + 1].split("\n")[:-1], 1):
        kind, *fields = line.split("\t")
        try:
            _NOTES[kind](synced, *fields)
        except (KeyError, TypeError, ValueError) as error:
            raise HarnessError(f"the notes of synced files have a wrong line {number}: {line!r}") from error
    return synced


def _sync(synced: Synced, size: str, path: str) -> None:
    # Two syncs at once may be noted the other way round.
    synced[path] = max(int(size), synced.get(path, 0))


def _truncate(synced: Synced, size: str, path: str) -> None:
    """What is written after a truncation is not what was synced there before."""
    if path in synced:
        synced[path] = min(int(size), synced[path])


def _rename(synced: Synced, before: str, after: str) -> None:
    """Move a file, or all files of a folder. A file that was there by the new name is gone."""
    synced.pop(after, None)
    for path in [one for one in synced if one == before or one.startswith(f"{before}/")]:
        synced[after + path[len(before) :]] = synced.pop(path)


def _remove(synced: Synced, path: str) -> None:
    synced.pop(path, None)


_NOTES: Final[dict[str, Callable[..., None]]] = {
    _SYNC: _sync,
    _TRUNCATE: _truncate,
    _RENAME: _rename,
    _REMOVE: _remove,
}
