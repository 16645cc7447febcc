"""What the gates of a run's brokers, or the guard beside them, did: facts about replicas for `harness.judge.earned`.

From ``gate.jsonl`` (schema in `harness.protect.gate.events`) or ``guard.jsonl`` (`harness.run_folder.guard_events`),
and from when brokers came back by the history.
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
"""What protects replicas, by its key in the manifest, with the file that has its events."""

_HOLDS: Final = {HELD, GuardEventKind.PAUSED}
_LETS_GO: Final = {RELEASED, GuardEventKind.RELEASED}
_COME_BACK: Final = '"f": "come back"'


@dataclass(frozen=True)
class ProtectionRecord:
    """The events of what protected replicas, and when brokers began to come back: None where they never did.

    ``by``: `GATES`, whose events are of one replica each, or `THE_GUARD`, whose events are of a topic. None for a build
    that has the gate's rules itself: its events have no times, and only those of copies that began anew count.
    """

    by: str | None
    events: Sequence[Mapping[str, Any]] = ()
    came_back_ms: int | None = None

    def facts(self, row: CheckerRow) -> CheckerRow:
        """Return a row of `checkers.consistency.exposure` with what was done to protect that replica.

        released_at_ms: when the gate or guard let go of a partition that it held while brokers came back.
        began_anew_from: the leader from which the replica was copied from its first record on, after its gate had
        dropped its log, and dropped_up_to: the end that this log had when it was dropped first; None where it was not.
        """
        place = {name: row[name] for name in ("broker", "topic", "partition")}
        events = [one for one in self.events if all(one.get(name, value) == value for name, value in place.items())]
        anew = [one for one in events if one["event"] == BEGAN_ANEW]
        return {
            **row,
            "released_at_ms": self._released_at_ms(events) if self.by else None,
            "began_anew_from": anew[-1]["leader"] if anew else None,
            "dropped_up_to": anew[0]["dropped_up_to"] if anew else None,
        }

    def _released_at_ms(self, events: Iterable[Mapping[str, Any]]) -> int | None:
        held_at_ms: int | None = None
        for one in events:
            if one["event"] in _HOLDS and held_at_ms is None:
                held_at_ms = one["time_ms"]
            elif one["event"] in _LETS_GO and held_at_ms is not None and self.came_back_ms is not None:
                if held_at_ms <= self.came_back_ms <= one["time_ms"]:
                    released_at_ms: int = one["time_ms"]
                    return released_at_ms
                held_at_ms = None
        return None


def protection_of(manifest: Mapping[str, Any]) -> str | None:
    """Return what protected the replicas of a run; None where nothing did."""
    return next((name for name in FILES if manifest.get(name)), None)


def came_back_at_ms(history: Path) -> int | None:
    """Return when the nemesis began to bring brokers back. The history's lines were checked when they were judged."""
    with history.open() as lines:
        events = [json.loads(line) for line in lines if _COME_BACK in line]
    return next((event["time_ms"] for event in events if event["type"] == "invoke"), None)
