"""Only what two readings have in common is reported."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from harness.audit.judge_copies import NO_ROWS
from harness.audit.live.compare import CHANGING, READINGS, CheckedReading, read_until_confirmed
from harness.judge.finding import Place

A, B = ("a", 0), ("b", 0)


def row(place: Place, offset: int, **more: Any) -> dict[str, Any]:
    return {"topic": place[0], "partition": place[1], "broker": 2, "offset": offset, "anomaly": "stuck-lso", **more}


def reading(*differences: dict[str, Any], **more: Any) -> CheckedReading:
    unknown = more.pop("unknown", {})
    return CheckedReading((), {**NO_ROWS, "stuck_lso": list(differences), **more}, unknown)


class Script:
    """Returns one reading after the other, and records the requests."""

    def __init__(self, *readings: CheckedReading) -> None:
        self.readings = list(readings)
        self.asked: list[Collection[Place] | None] = []

    def __call__(self, number: int, places: Collection[Place] | None) -> CheckedReading:
        self.asked.append(places)
        assert number == len(self.asked)
        return self.readings.pop(0)


def test_what_agrees_is_read_once() -> None:
    script = Script(reading(unknown={A: ("it was not read",)}))
    assert read_until_confirmed(script).unknown == {A: ("it was not read",)}
    assert script.asked == [None]


def test_what_is_found_twice_is_reported_as_it_was_seen_last() -> None:
    script = Script(reading(row(A, 1), row(A, 5)), reading(row(A, 1, log_end=7)))
    result = read_until_confirmed(script)
    assert result.rows["stuck_lso"] == [row(A, 1, log_end=7)]
    assert result.unknown == {}
    assert script.asked == [None, {A}]


def test_what_is_found_once_is_not_reported() -> None:
    script = Script(reading(row(A, 1)), reading())
    assert read_until_confirmed(script).rows["stuck_lso"] == []
    assert script.asked == [None, {A}]


def test_what_moves_on_is_unknown_after_so_many_readings() -> None:
    script = Script(*(reading(row(A, number)) for number in range(READINGS)))
    result = read_until_confirmed(script)
    assert result.rows["stuck_lso"] == []
    assert result.unknown == {A: (CHANGING,)}
    assert script.readings == []


def test_the_same_offset_under_another_name_is_another_finding() -> None:
    script = Script(reading(row(A, 1)), reading(row(A, 1, anomaly="tombstone-divergence")), reading())
    assert read_until_confirmed(script).rows["stuck_lso"] == []


def test_only_partitions_in_doubt_are_read_again_and_the_others_stay_as_they_are() -> None:
    replicas = [row(A, 0), row(B, 0)]
    first = reading(row(A, 1), replicas=replicas, unknown={A: ("busy",), B: ("busy",)})
    script = Script(first, reading(row(A, 1), replicas=[row(A, 9)]))
    result = read_until_confirmed(script)
    assert result.rows["replicas"] == [row(B, 0), row(A, 9)]
    assert result.unknown == {B: ("busy",)}
    assert script.asked == [None, {A}]


def test_a_doubt_that_goes_away_is_forgotten_and_one_that_stays_is_reported() -> None:
    doubts = [row(A, 0, reason="?"), row(B, 0, reason="?")]
    script = Script(reading(doubts=doubts), reading(doubts=doubts[1:]), reading(doubts=doubts[1:]))
    assert read_until_confirmed(script).rows["doubts"] == doubts[1:]
    assert script.asked == [None, {A, B}, {B}]


def test_what_a_checker_raised_is_not_forgotten() -> None:
    raised = [{"name": "unexplained", "reason": "?"}]
    assert read_until_confirmed(Script(reading(row(A, 1), raised=raised), reading())).rows["raised"] == raised
