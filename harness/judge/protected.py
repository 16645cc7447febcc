"""The actions of the gates of a run's brokers, or of the guard: facts about replicas for `harness.judge.earned`.

From ``gate.jsonl`` (schema in `harness.protect.gate.events`) or ``guard.jsonl`` (`harness.run_folder.guard_events`),
and from the time in the history at which brokers came back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.protect.gate.events import BEGAN_ANEW, HELD, RELEASED
from harness.run_folder.guard_events import GuardEventKind
from harness.run_folder.store import GATE, GUARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.judge.finding import CheckerRow

UNPROTECTED, GATES, THE_GUARD = "none", "gate", "guard"
FILES: Final = {GATES: GATE, THE_GUARD: GUARD}
"""The files with the events of each protection, by its key in the manifest."""

_HOLDS: Final = {HELD, GuardEventKind.PAUSED}
_RELEASES: Final = {RELEASED, GuardEventKind.RELEASED}
_COME_BACK: Final = '"f": "come back"'


@dataclass(frozen=True)
class ProtectionRecord:
    """The events of gates or the guard, and the time at which brokers began to come back: None if none came back.

    ``by``: `GATES`, whose events are of one replica each, or `THE_GUARD`, whose events are of a topic. None for a build
    that has the gate's rules itself: its events have no times, and only the events of copies that began again count.
    """

    by: str | None
    events: Sequence[Mapping[str, Any]] = ()
    came_back_ms: int | None = None

    def facts(self, row: CheckerRow) -> CheckerRow:
        """Return a row of `checkers.consistency.exposure` with the facts about the protection of that replica.

        released_at_ms: when the gate or guard released a partition that it held while brokers came back.
        began_anew_from: the leader from which the replica was copied from its first record on, after its gate had
        dropped its log, and dropped_up_to: the end of the log that was dropped first; None if no log was dropped.
        """
        place = {name: row[name] for name in ("broker", "topic", "partition")}.items()
        events = [event for event in self.events if all(event.get(name, value) == value for name, value in place)]
        copies = [event for event in events if event["event"] == BEGAN_ANEW]
        return {
            **row,
            "released_at_ms": self._released_at_ms(events) if self.by else None,
            "began_anew_from": copies[-1]["leader"] if copies else None,
            "dropped_up_to": copies[0]["dropped_up_to"] if copies else None,
        }

    def _released_at_ms(self, events: Iterable[Mapping[str, Any]]) -> int | None:
        held_at_ms: int | None = None
        for event in events:
            if event["event"] in _HOLDS and held_at_ms is None:
                held_at_ms = event["time_ms"]
            elif event["event"] in _RELEASES and held_at_ms is not None and self.came_back_ms is not None:
                released_at_ms: int = event["time_ms"]
                if held_at_ms <= self.came_back_ms <= released_at_ms:
                    return released_at_ms
                held_at_ms = None
        return None


def protection_of(manifest: Mapping[str, Any]) -> str | None:
    """Return the key of a run's protection; None for a run without protection."""
    return next((name for name in FILES if manifest.get(name)), None)


def came_back_at_ms(history: Path) -> int | None:
    """Return when the nemesis began to bring brokers back. The history's lines were checked when they were judged."""
    with history.open() as lines:
        events = [json.loads(line) for line in lines if _COME_BACK in line]
    return next((event["time_ms"] for event in events if event["type"] == "invoke"), None)
