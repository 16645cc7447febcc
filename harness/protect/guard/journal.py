"""The entries of the channel, a log of intentions: an entry is written before each change, and another after it.

    pausing    found     before the settings of a pause are set
    paused     found     after that; ``found`` does not have a setting that somebody changed during the pause
    releasing            before the settings in ``found`` are restored
    released             after that: the topic is forgotten
    hold, unhold  by     another command needs the topic to stay paused: ``by`` names it, such as ``repair 7c1f``.
                         The guard that acts pauses such a topic, and does not release it
    note   name, value   a note of another command; the last note of a name counts, and null removes it

Each JSON entry has ``kind``, ``topic``, ``time_ms`` and ``writer``; entries about a pause have ``cycle``, too. A pause
is a cycle, from its ``pausing`` on. An entry of another cycle than the topic's present cycle changes nothing: it was
sent by a guard that has been replaced, and arrived late. Unknown kinds are skipped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from harness.protect.guard.cluster import PAUSE, TopicValues


class PausePhase(StrEnum):
    """The phase of a pause; also the kind of its entry."""

    PAUSING = "pausing"
    PAUSED = "paused"
    RELEASING = "releasing"
    RELEASED = "released"


PHASES: Final = frozenset(PausePhase)
HOLD, UNHOLD, NOTE = "hold", "unhold", "note"


@dataclass(frozen=True)
class Pause:
    """One topic's pause. ``previous``: the values to restore. ``since_ms``: its begin, by the writer's clock."""

    topic: str
    phase: PausePhase
    cycle: str
    previous: TopicValues
    since_ms: int


@dataclass(frozen=True)
class Entry:
    """One record of the channel. ``content``: the fields of its kind. The channel sets time and writer."""

    kind: str
    topic: str
    time_ms: int = 0
    writer: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the record's value."""
        head = {"schema": 1, "kind": self.kind, "topic": self.topic, "time_ms": self.time_ms, "writer": self.writer}
        return json.dumps({**head, **self.content})

    @property
    def key(self) -> tuple[object, ...] | None:
        """Identifies the part of a state that the entry changes; None for an entry that only ends a hold."""
        if self.kind in PHASES:
            return "pause", self.topic, self.content.get("cycle")
        if self.kind == HOLD:
            return HOLD, self.topic, self.content.get("by")
        return (NOTE, self.content.get("name")) if self.kind == NOTE else None


def entry_of(pause: Pause) -> Entry:
    """Return the entry that records a pause."""
    content = {"cycle": pause.cycle, "found": dict(pause.previous), "since_ms": pause.since_ms}
    return Entry(pause.phase, pause.topic, content=content)


def parse_entry(text: bytes) -> Entry | None:
    """Return the entry of a record's value; None for any other record."""
    try:
        content = json.loads(text)
        kind, topic, time_ms, writer = (content.pop(name) for name in ("kind", "topic", "time_ms", "writer"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    is_entry = isinstance(kind, str) and isinstance(topic, str) and isinstance(time_ms, int)
    return Entry(kind, topic, time_ms, str(writer), content) if is_entry else None


@dataclass(frozen=True)
class PauseState:
    """The state after some entries. ``holds``: the commands that need a topic paused. ``notes``: by name."""

    pauses: Mapping[str, Pause] = field(default_factory=dict)
    holds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def after(self, entries: Iterable[Entry]) -> "PauseState":
        """Return the state after further entries."""
        pauses, holds, notes = dict(self.pauses), dict(self.holds), dict(self.notes)
        for entry in entries:
            if entry.kind in PHASES:
                _follow(pauses, entry)
            elif entry.kind in {HOLD, UNHOLD} and (by := entry.content.get("by")):
                others = holds.pop(entry.topic, frozenset()) - {by}
                if holders := others | {by} if entry.kind == HOLD else others:
                    holds[entry.topic] = holders
            elif entry.kind == NOTE and isinstance(name := entry.content.get("name"), str):
                notes[name] = entry.content.get("value")
        present = {name: value for name, value in notes.items() if value is not None}
        return replace(self, pauses=pauses, holds=holds, notes=present)


def _follow(pauses: dict[str, Pause], entry: Entry) -> None:
    pause, cycle, previous = pauses.get(entry.topic), entry.content.get("cycle"), entry.content.get("found")
    if not isinstance(cycle, str) or not isinstance(previous, dict) or not previous.keys() <= PAUSE.keys():
        return
    phase = PausePhase(entry.kind)
    if phase is PausePhase.PAUSING:
        since_ms = entry.content.get("since_ms", entry.time_ms)
        pauses[entry.topic] = Pause(entry.topic, phase, cycle, previous, since_ms)
    elif pause is not None and pause.cycle == cycle:
        if phase is PausePhase.RELEASED:
            del pauses[entry.topic]
        else:
            pauses[entry.topic] = replace(pause, phase=phase, previous=previous)


@dataclass
class ReplayedJournal:
    """The channel's log as one reader has replayed it, up to ``position``, the offset of the next entry.

    Entries below `needed_from` may be deleted: the later entries alone give the same state. A log that begins later
    than a reader has read is replayed from its beginning, because the reader may have missed the end of a pause.
    """

    position: int = 0
    state: PauseState = field(default_factory=PauseState)
    _offsets: dict[tuple[object, ...], int] = field(default_factory=dict)

    def start(self, log_start: int) -> int:
        """Return the offset from which to read on."""
        if log_start > self.position:
            self.position, self.state, self._offsets = log_start, PauseState(), {}
        return self.position

    def add(self, entries: Sequence[tuple[int, Entry]], position: int) -> None:
        """Replay further entries, each with its offset, up to ``position``."""
        self.state, self.position = self.state.after(entry for _, entry in entries), position
        for offset, entry in entries:
            # A pause is replayed from its first entry, a hold or a note from its last entry.
            if entry.key is not None and not (entry.kind in PHASES and entry.key in self._offsets):
                self._offsets[entry.key] = offset
        needed = {
            *(("pause", topic, pause.cycle) for topic, pause in self.state.pauses.items()),
            *((HOLD, topic, by) for topic, holders in self.state.holds.items() for by in holders),
            *((NOTE, name) for name in self.state.notes),
        }
        self._offsets = {key: offset for key, offset in self._offsets.items() if key in needed}

    @property
    def needed_from(self) -> int:
        """The offset from which the entries give the present state."""
        return min(self._offsets.values(), default=self.position)
