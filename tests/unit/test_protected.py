"""``clean`` of a run with gates or a guard: earned by observed holds, for every replica that stayed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_verdict import SCENARIO, control, fact, returned

from harness.judge.earned import ProtectionRecord, came_back_at_ms, earn
from harness.run_folder.store import GATES, THE_GUARD

CAME_BACK_MS = 50
WAY = "the gate held it while the replica was absent, cleaners passed others, and every replica removed it afterwards"
KEPT = {"held_critical": True, "removed_at_ms": 90}


def event(kind: str, time_ms: int, broker: int = 1, **more: Any) -> dict[str, Any]:
    return {"broker": broker, "time_ms": time_ms, "event": kind, "topic": "stuck-lso", "partition": 0, **more}


def hold(broker: int, held_ms: int = 20, released_ms: int = 80) -> list[dict[str, Any]]:
    return [event("held", held_ms, broker), event("released", released_ms, broker)]


BOTH = [*hold(1), *hold(3)]


def judged(
    events: list[dict[str, Any]],
    facts: Sequence[Mapping[str, Any]] | None = None,
    *,
    hands_over: bool = False,
    **changes: Any,
) -> tuple[str | None, str]:
    rows = facts or [fact(1, **KEPT), fact(3, **KEPT), returned(seen_there=True, removed_at_ms=95)]
    record = ProtectionRecord(changes.get("by", GATES), events, changes.get("came_back_ms", CAME_BACK_MS))
    others, facts = changes.get("others", control()), [record.facts(row) for row in rows]
    return earn(SCENARIO, facts, others, absent=[2], hands_over=hands_over, protected_by=record.by)


def test_a_gate_that_held_the_partition_earns_it() -> None:
    assert judged(BOTH) == (WAY, "")


def test_a_gate_that_is_installed_has_no_time() -> None:
    installed: list[dict[str, Any]] = [{"broker": broker, "event": "installed"} for broker in (1, 2, 3)]
    assert judged([*installed, *BOTH]) == (WAY, "")


def of_guard(*events: tuple[str, int]) -> list[dict[str, Any]]:
    of_topic = [{"event": event, "time_ms": time_ms, "topic": "stuck-lso"} for event, time_ms in events]
    return [{"event": "ready", "topic": "", "time_ms": 1}, *of_topic]


@pytest.mark.parametrize(
    ("events", "lack"),
    [
        ((("paused", 20), ("released", 80)), ""),
        ((), "still held it when the replica came back"),
        ((("paused", 20), ("released", 40)), "still held it when the replica came back"),
        ((("paused", 20), ("released", 40), ("paused", 45), ("released", 80)), ""),
        ((("paused", 20), ("released", 95)), "broker 1 removed it before the guard released"),
    ],
)
def test_a_guard_that_held_the_topic_earns_it(events: tuple[tuple[str, int], ...], lack: str) -> None:
    earned, why = judged(of_guard(*events), by=THE_GUARD)
    assert earned == (None if lack else WAY.replace("gate", "guard"))
    assert lack in why
    other = [{**row, "topic": "other"} for row in of_guard(("paused", 20), ("released", 80))]
    assert judged(other, by=THE_GUARD)[0] is None


@pytest.mark.parametrize(
    ("events", "changes", "lack"),
    [
        ([], {}, "still held it when the replica came back"),
        (hold(1), {}, "broker 3 was not held by the gate while the replica was absent"),
        ([*hold(1), *hold(3, 20, 40)], {}, "broker 3 was not held by the gate"),
        ([*hold(1), *hold(3, 60, 80)], {}, "broker 3 was not held by the gate"),
        ([*hold(1), event("held", 20, 3)], {}, "broker 3 was not held by the gate"),
        ([*hold(1), *hold(3, 20, 95)], {}, "broker 3 removed it before the gate released"),
        (BOTH, {"came_back_ms": None}, "still held it when the replica came back"),
        (BOTH, {"others": control(held_critical=True)}, "on the control partition, broker 1 still held it"),
        (BOTH, {"others": []}, "on the control partition, no replica shows it"),
    ],
)
def test_what_the_gate_was_not_seen_to_do_earns_nothing(
    events: list[dict[str, Any]], changes: dict[str, Any], lack: str
) -> None:
    earned, why = judged(events, **changes)
    assert earned is None
    assert lack in why


def test_a_hold_is_that_of_the_return() -> None:
    flapping = [*hold(1, 5, 10), *hold(1), *hold(3, 5, 10), event("held", 12, 3), event("held", 30, 3)]
    assert judged([*flapping, event("released", 80, 3)]) == (WAY, "")


def test_what_is_kept_on_one_replica_and_not_removed_afterwards_is_unknown() -> None:
    rows = [fact(1, **KEPT), fact(3, **KEPT), returned(seen_there=True, removed_at_ms=None)]
    earned, lack = judged(BOTH, rows)
    assert earned is None
    assert "broker 2 did not remove it afterwards" in lack


def test_what_was_removed_all_the_same_is_judged_as_ever() -> None:
    assert judged([], [fact(1), fact(3), returned()]) == ("the others removed it while the replica was absent", "")


def copied(**changes: Any) -> list[dict[str, Any]]:
    """A replica that was copied again from broker 3, which had removed the complete transaction."""
    return [fact(1), fact(3), returned(**{"has_payload": False, "served_digest": 3, **changes})]


def test_a_copy_that_began_anew_serves_what_its_leader_serves() -> None:
    anew = [event("began-anew", at, 2, leader=leader, dropped_up_to=15) for at, leader in ((55, 1), (60, 3))]
    assert judged(anew, copied()) == ("the others removed it while the replica was absent", "")
    for events, rows in (([], copied()), (anew[:1], copied()), (anew, copied(served_digest=99))):
        earned, lack = judged(events, rows)
        assert earned is None
        assert "no longer holds the transaction" in lack


DROPPED = {"had_payload": False, "log_end_before": 8, "has_payload": False, "served_digest": 1}
"""A copy that a gate dropped when its leader changed: all its records came from the second leader."""
HANDED_OVER = [fact(1, led=True), fact(3, had_payload=True, has_payload=True, held_critical=True), returned(**DROPPED)]
RELAYED = "the copy began from a replica that still held it, and continued from a leader that had removed it"


@pytest.mark.parametrize(
    ("dropped_up_to", "lack"),
    [
        (15, ""),
        (20, ""),
        (10, "broker 2 did not have the payload"),
        (21, "broker 2 did not have the payload"),
        (None, "broker 2 did not have the payload"),
    ],
)
def test_a_copy_that_was_dropped_in_mid_copy_had_the_payload(dropped_up_to: int | None, lack: str) -> None:
    anew = [event("began-anew", 40, 2, leader=1, dropped_up_to=dropped_up_to)] if dropped_up_to else []
    earned, why = judged(anew, HANDED_OVER, hands_over=True)
    assert earned == (None if lack else RELAYED)
    assert lack in why


def test_when_brokers_began_to_come_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(
        '{"type": "invoke", "f": "leave", "time_ms": 1}\n'
        '{"type": "invoke", "f": "come back", "time_ms": 7}\n'
        '{"type": "ok", "f": "come back", "time_ms": 9}\n'
    )
    assert came_back_at_ms(path) == 7
    path.write_text('{"type": "invoke", "f": "leave", "time_ms": 1}\n')
    assert came_back_at_ms(path) is None


def test_of_a_build_s_events_only_a_copy_that_began_anew_counts() -> None:
    held, released = event("held", 0, 2), event("released", 0, 2)
    anew = event("began-anew", 0, 2, leader=1, dropped_up_to=15)
    for row in (held, anew, released):
        del row["time_ms"]
    record = ProtectionRecord(None, [held, anew, released], CAME_BACK_MS)
    assert [record.facts(row)["released_at_ms"] for row in HANDED_OVER] == [None, None, None]
    assert judged([held, anew, released], HANDED_OVER, hands_over=True, by=None) == (RELAYED, "")
