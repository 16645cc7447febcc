"""Notes of an audit: equal notes about many files, folders or partitions become one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Note:
    """A note about a partition's ``folder`` that was copied from a broker, or about a ``file`` in it."""

    broker: int
    folder: str
    text: str
    file: str = ""


def in_sentences(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return a sentence for each group of equal notes: one note names its file or folder, several are counted."""
    alike: dict[tuple[str, bool], list[Note]] = {}
    for note in dict.fromkeys(notes):
        alike.setdefault((note.text, bool(note.file)), []).append(note)
    return tuple(f"{_subject(group)}: {text}" for (text, _), group in alike.items())


def listed(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more} more"


def _subject(notes: Sequence[Note]) -> str:
    brokers = sorted({note.broker for note in notes})
    brokers_text = f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
    first = notes[0]
    if len(notes) == 1:
        return f"{brokers_text}: {first.folder}{'/' if first.file else ''}{first.file}"
    folders = len({(note.broker, note.folder) for note in notes})
    of_folders = f"{folders} folder{'s' if folders > 1 else ''}"
    return f"{brokers_text}: {f'{len(notes)} files in {of_folders}' if first.file else of_folders}"
