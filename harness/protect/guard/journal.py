"""The entries of the channel, and the state that they give: what is paused, with what was found, and who holds topics.

The channel is a log of intentions. An entry is written before the change that it announces, and another one after it:

    pausing    found     before the settings of a pause are set
    paused     found     after that; ``found`` lacks a setting that somebody changed during the pause
    releasing            before what was found is put back
    released             after that: the topic is forgotten
    hold, unhold  by     another command needs the topic to stay paused: ``by`` names it, such as ``repair 7c1f``.
                         The guard that acts pauses a topic that is held, and does not release it
    note   name, value   what another command keeps here; the last one of a name counts, and null forgets it

Each JSON entry has ``kind``, ``topic``, ``time_ms`` and ``writer``; those about a pause have ``cycle``, too. A pause
is a cycle, from its ``pausing`` on. An entry of another cycle than the topic's present one changes nothing: it was sent
by a guard that has been replaced, and arrived late. Kinds that are not known are skipped: other commands may keep
notes of their own here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from harness.protect.guard.settings import PAUSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.protect.guard.settings import Found

SCHEMA: Final = 1


class PausePhase(StrEnum):
    """How far a pause has come; also the kind of the entry that says so."""

    PAUSING = "pausing"
    PAUSED = "paused"
    RELEASING = "releasing"
    RELEASED = "released"


HOLD, UNHOLD = "hold", "unhold"
NOTE: Final = "note"


@dataclass(frozen=True)
class Pause:
    """One topic's pause. ``found``: what is to be put back. ``since_ms``: when it began, by the writer's clock."""

    topic: str
    phase: PausePhase
    cycle: str
    found: Found
    since_ms: int


@dataclass(frozen=True)
class Entry:
    """One record of the channel. ``content``: what its kind adds."""

    kind: str
    topic: str
    time_ms: int
    writer: str
    content: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the record's value."""
        head = {"schema": SCHEMA, "kind": self.kind, "topic": self.topic}
        return json.dumps({**head, "time_ms": self.time_ms, "writer": self.writer, **self.content})


def entry_of(pause: Pause, time_ms: int, writer: str) -> Entry:
    """Return the entry that says how far a pause has come."""
    content = {"cycle": pause.cycle, "found": dict(pause.found), "since_ms": pause.since_ms}
    return Entry(pause.phase, pause.topic, time_ms, writer, content)


def parse_entry(text: bytes) -> Entry | None:
    """Return the entry of a record's value; None for what is none."""
    try:
        content = json.loads(text)
        kind, topic, time_ms, writer = (content.pop(name) for name in ("kind", "topic", "time_ms", "writer"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    is_entry = isinstance(kind, str) and isinstance(topic, str) and isinstance(time_ms, int)
    return Entry(kind, topic, time_ms, str(writer), content) if is_entry else None


@dataclass(frozen=True)
class PauseState:
    """What the entries say. ``holds``: by topic, who needs it to stay paused. ``notes``: of other commands, by name."""

    pauses: Mapping[str, Pause] = field(default_factory=dict)
    holds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def after(self, entries: Iterable[Entry]) -> PauseState:
        """Return the state after further entries."""
        pauses, holds, notes = dict(self.pauses), dict(self.holds), dict(self.notes)
        for entry in entries:
            if entry.kind in set(PausePhase):
                _follow(pauses, entry)
            elif entry.kind in {HOLD, UNHOLD} and (by := entry.content.get("by")):
                others = holds.pop(entry.topic, frozenset()) - {by}
                holders = others | {by} if entry.kind == HOLD else others
                if holders:
                    holds[entry.topic] = holders
            elif entry.kind == NOTE and isinstance(name := entry.content.get("name"), str):
                notes[name] = entry.content.get("value")
        kept = {name: value for name, value in notes.items() if value is not None}
        return replace(self, pauses=pauses, holds=holds, notes=kept)


def _follow(pauses: dict[str, Pause], entry: Entry) -> None:
    """Bring one topic's pause up to this entry."""
    now, cycle, found = pauses.get(entry.topic), entry.content.get("cycle"), entry.content.get("found")
    if not isinstance(cycle, str) or not isinstance(found, dict) or not found.keys() <= PAUSE.keys():
        return
    phase = PausePhase(entry.kind)
    if phase is PausePhase.PAUSING:
        since_ms = entry.content.get("since_ms", entry.time_ms)
        pauses[entry.topic] = Pause(entry.topic, phase, cycle, found, since_ms)
    elif now is not None and now.cycle == cycle:
        if phase is PausePhase.RELEASED:
            del pauses[entry.topic]
        else:
            pauses[entry.topic] = replace(now, phase=phase, found=found)
