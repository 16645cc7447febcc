"""What the gates of a run's brokers did, as facts about each replica for `harness.judge.earned`.

From ``gate.jsonl`` (schema in `harness.gate.events`) and from the time in the history when brokers came back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.gate.events import BEGAN_ANEW, HELD, RELEASED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_COME_BACK: Final = '"f": "come back"'


@dataclass(frozen=True)
class GateRecord:
    """The events of the gates, and when brokers began to come back: None where they never did."""

    events: Sequence[dict[str, Any]] = ()
    came_back_ms: int | None = None

    def facts(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row of `checkers.consistency.exposure` with what the gate of its broker did to that replica.

        gate_released_at_ms: when it let go of a partition that it held while brokers came back. began_anew_from: the
        leader from which the replica was copied from its first record on, after its gate had dropped its log, and
        dropped_up_to: the end that this log had when it was dropped first; None where it was not.
        """
        replica = (row["broker"], row["topic"], row["partition"])
        events = [one for one in self.events if (one["broker"], one["topic"], one["partition"]) == replica]
        anew = [one for one in events if one["event"] == BEGAN_ANEW]
        return {
            **row,
            "gate_released_at_ms": self._released_at_ms(events),
            "began_anew_from": anew[-1]["leader"] if anew else None,
            "dropped_up_to": anew[0]["dropped_up_to"] if anew else None,
        }

    def _released_at_ms(self, events: Iterable[dict[str, Any]]) -> int | None:
        held_at_ms: int | None = None
        for one in events:
            if one["event"] == HELD and held_at_ms is None:
                held_at_ms = one["time_ms"]
            elif one["event"] == RELEASED and held_at_ms is not None and self.came_back_ms is not None:
                if held_at_ms <= self.came_back_ms <= one["time_ms"]:
                    released_at_ms: int = one["time_ms"]
                    return released_at_ms
                held_at_ms = None
        return None


def came_back_at_ms(history: Path) -> int | None:
    """Return when the nemesis began to bring brokers back. The history's lines were checked when they were judged."""
    with history.open() as lines:
        events = [json.loads(line) for line in lines if _COME_BACK in line]
    return next((event["time_ms"] for event in events if event["type"] == "invoke"), None)
