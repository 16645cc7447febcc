"""Select the topics of a command, for copies of disks and for a running cluster, and word the notes of an audit.

A pattern matches topics that begin with ``__`` only if it begins with ``__``, as a shell's ``*`` treats files that
begin with a dot. By default every compacted topic is selected, including internal ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from harness.broker_files.internal_topics.decode import COMPACTED_BY_DEFAULT

MOST_NAMED: Final = 3
_SHOWN: Final = 10


@dataclass(frozen=True)
class Note:
    """A note about a partition's ``folder`` that was copied from a broker, or about a ``file`` in it."""

    broker: int
    folder: str
    text: str
    file: str = ""


def is_named(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether a name or a pattern (``*``, ``?``, ``[...]``) selects a topic."""
    return any(
        fnmatchcase(topic, pattern) and (pattern.startswith("__") or not topic.startswith("__")) for pattern in patterns
    )


def is_compacted(topic: str, policy: str | None) -> bool:
    """Return whether a topic is compacted by its cleanup policy or, if that is unknown, by brokers' defaults."""
    if policy is None:
        return topic in COMPACTED_BY_DEFAULT
    return "compact" in (part.strip() for part in policy.split(","))


def internal_left_out(topics: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return a note on the internal topics that a pattern does not match only because they begin with ``__``."""
    matching = {topic for topic in topics if any(fnmatchcase(topic, pattern) for pattern in patterns)}
    names = listed(sorted(topic for topic in matching if not is_named(topic, patterns)), _SHOWN)
    remedy = "name them, or leave out --topic for every compacted topic"
    return [f"internal topics are left out: {names}; {remedy}"] if names else []


def audited(topics: Iterable[str], others: int, source: str) -> str:
    """Return a note on the topics that are audited by default. ``others``: the number of topics that are not."""
    names = sorted(topics)
    rest = f"; {others} more topic{'s are' if others > 1 else ' is'} not compacted" if others else ""
    return f"every compacted topic is audited, by {source}: {', '.join(names)}{rest}"


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
    folders, first = len({(note.broker, note.folder) for note in notes}), notes[0]
    if len(notes) == 1:
        text = f"{first.folder}{'/' if first.file else ''}{first.file}"
    else:
        text = f"{f'{len(notes)} files in ' if first.file else ''}{folders} folder{'s' if folders > 1 else ''}"
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}: {text}"
