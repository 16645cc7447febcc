"""``clean`` of a run with gates or a guard: earned by observed holds, for every replica that stayed."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fakes.clock import TickingClock
from test_verdict import SCENARIO, control, fact, returned

from harness.host.commands import ENVIRONMENT
from harness.judge.earned import ProtectionRecord, came_back_at_ms, earn
from harness.play.protection import GuardBeside
from harness.run_folder.store import GATES, THE_GUARD

CAME_BACK_MS = 50
HELD = "the gate held it while the replica was absent, cleaners passed others, and every replica removed it afterwards"
GUARDED = HELD.replace("gate", "guard")
REMOVED = "the others removed it while the replica was absent"
RELAYED = "the copy began from a replica that still held it, and continued from a leader that had removed it"
STILL_HELD = "still held it when the replica came back"
NOT_HELD = "broker 3 was not held by the gate"
NO_PAYLOAD, NO_TRANSACTION = "broker 2 did not have the payload", "no longer holds the transaction"


def event(kind: str, time_ms: int, broker: int = 1, **more: Any) -> dict[str, Any]:
    return {"broker": broker, "time_ms": time_ms, "event": kind, "topic": "stuck-lso", "partition": 0, **more}


def hold(broker: int, held_ms: int = 20, released_ms: int = 80) -> list[dict[str, Any]]:
    return [event("held", held_ms, broker), event("released", released_ms, broker)]


def of_guard(*events: tuple[str, int], topic: str = "stuck-lso") -> list[dict[str, Any]]:
    of_topic = [{"event": kind, "time_ms": time_ms, "topic": topic} for kind, time_ms in events]
    return [{"event": "ready", "topic": "", "time_ms": 1}, *of_topic]


def anew(time_ms: int, leader: int, dropped_up_to: int = 15) -> dict[str, Any]:
    return event("began-anew", time_ms, 2, leader=leader, dropped_up_to=dropped_up_to)


BOTH = [*hold(1), *hold(3)]
INSTALLED: list[dict[str, Any]] = [{"broker": broker, "event": "installed"} for broker in (1, 2, 3)]
FLAPPING = [*hold(1, 5, 10), *hold(1), *hold(3, 5, 10), event("held", 12, 3), event("held", 30, 3)]
KEPT = [fact(broker, held_critical=True, removed_at_ms=90) for broker in (1, 3)]
COPIED = {"has_payload": False, "served_digest": 3}
"""A replica that was copied again from broker 3, which had removed the complete transaction."""
DROPPED = {"had_payload": False, "log_end_before": 8, "has_payload": False, "served_digest": 1}
"""A copy that a gate dropped when its leader changed: all its records came from the second leader."""
HANDED_OVER = [fact(1, led=True), fact(3, had_payload=True, has_payload=True, held_critical=True), returned(**DROPPED)]
ON_GUARD: dict[str, Any] = {"by": THE_GUARD}
OVER: dict[str, Any] = {"facts": HANDED_OVER, "hands_over": True}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "an installed gate has no time": ([*INSTALLED, *BOTH], {}, HELD),
    "a hold is that of the return": ([*FLAPPING, event("released", 80, 3)], {}, HELD),
    "nothing was held": ([], {}, STILL_HELD),
    "one replica was not held": (hold(1), {}, NOT_HELD),
    "released before the return": ([*hold(1), *hold(3, 20, 40)], {}, NOT_HELD),
    "held after the return": ([*hold(1), *hold(3, 60, 80)], {}, NOT_HELD),
    "never released": ([*hold(1), event("held", 20, 3)], {}, NOT_HELD),
    "removed before the release": ([*hold(1), *hold(3, 20, 95)], {}, "broker 3 removed it before the gate released"),
    "no return": (BOTH, {"came_back_ms": None}, STILL_HELD),
    "the control was held": (BOTH, {"others": control(held_critical=True)},
                             "on the control partition, broker 1 still held it"),
    "no control": (BOTH, {"others": []}, "on the control partition, no replica shows it"),
    "one replica keeps it": (BOTH, {"facts": [*KEPT, returned(seen_there=True, removed_at_ms=None)]},
                             "broker 2 did not remove it afterwards"),
    "removed all the same": ([], {"facts": [fact(1), fact(3), returned()]}, REMOVED),
    "a guard held it": (of_guard(("paused", 20), ("released", 80)), ON_GUARD, GUARDED),
    "a guard held it again": (of_guard(("paused", 20), ("released", 40), ("paused", 45), ("released", 80)), ON_GUARD,
                              GUARDED),
    "a guard held nothing": (of_guard(), ON_GUARD, STILL_HELD),
    "a guard held another topic": (of_guard(("paused", 20), ("released", 80), topic="other"), ON_GUARD, STILL_HELD),
    "a guard released too early": (of_guard(("paused", 20), ("released", 40)), ON_GUARD, STILL_HELD),
    "removed before a guard released": (of_guard(("paused", 20), ("released", 95)), ON_GUARD,
                                        "broker 1 removed it before the guard released"),
    "a copy serves what its leader serves": ([anew(55, 1), anew(60, 3)], {"copied": COPIED}, REMOVED),
    "a copy that no event shows": ([], {"copied": COPIED}, NO_TRANSACTION),
    "a copy of another leader": ([anew(55, 1)], {"copied": COPIED}, NO_TRANSACTION),
    "a copy that serves something else": ([anew(55, 1), anew(60, 3)], {"copied": {**COPIED, "served_digest": 99}},
                                          NO_TRANSACTION),
    "dropped in mid-copy": ([anew(40, 1)], OVER, RELAYED),
    "dropped far behind the payload": ([anew(40, 1, 20)], OVER, RELAYED),
    "dropped before the payload": ([anew(40, 1, 10)], OVER, NO_PAYLOAD),
    "dropped behind the return": ([anew(40, 1, 21)], OVER, NO_PAYLOAD),
    "never dropped": ([], OVER, NO_PAYLOAD),
}  # fmt: skip


@pytest.mark.parametrize(("events", "changes", "expected"), CASES.values(), ids=CASES)
def test_clean_is_earned_by_what_was_seen(events: list[dict[str, Any]], changes: dict[str, Any], expected: str) -> None:
    earned, lack = judged(events, **changes)
    assert earned == (expected if expected in {HELD, GUARDED, REMOVED, RELAYED} else None)
    assert lack == "" if earned else expected in lack


def judged(
    events: list[dict[str, Any]],
    *,
    facts: list[dict[str, Any]] | None = None,
    copied: dict[str, Any] | None = None,
    others: list[dict[str, Any]] | None = None,
    by: str | None = GATES,
    came_back_ms: int | None = CAME_BACK_MS,
    hands_over: bool = False,
) -> tuple[str | None, str]:
    default = [*KEPT, returned(seen_there=True, removed_at_ms=95)]
    rows = facts or ([fact(1), fact(3), returned(**copied)] if copied else default)
    record = ProtectionRecord(by, events, came_back_ms)
    others = control() if others is None else others
    seen = [record.facts(row) for row in rows]
    return earn(SCENARIO, seen, others, absent=[2], hands_over=hands_over, protected_by=by)


def test_when_brokers_began_to_come_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    acts = [("invoke", "leave", 1), ("invoke", "come back", 7), ("ok", "come back", 9)]
    lines = [json.dumps({"type": kind, "f": f, "time_ms": time_ms}) + "\n" for kind, f, time_ms in acts]
    path.write_text("".join(lines))
    assert came_back_at_ms(path) == 7
    path.write_text(lines[0])
    assert came_back_at_ms(path) is None


def test_of_a_build_s_events_only_a_copy_that_began_anew_counts() -> None:
    events = [event("held", 0, 2), anew(0, 1), event("released", 0, 2)]
    for row in events:
        del row["time_ms"]
    record = ProtectionRecord(None, events, CAME_BACK_MS)
    assert [record.facts(row)["released_at_ms"] for row in HANDED_OVER] == [None, None, None]
    assert judged(events, **OVER, by=None) == (RELAYED, "")


def test_the_guard_of_a_run_does_not_inherit_an_environment_that_spark_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Mock()
    monkeypatch.setattr("subprocess.Popen", started)
    GuardBeside("run", "b:1", tmp_path / "events", tmp_path / "log", TickingClock())._start()
    assert started.call_args.kwargs["env"] is ENVIRONMENT
