"""Differences that go away when brokers are asked again are not reported; those that may hide others are read again."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from fakes.brokers import NOT_LEADER, TP, FakeBroker, Held, audited
from sample_logs import small_batch as batch

from checkers.finding import BATCH, LIST, LISTED, RECORD
from harness.audit.judge_copies import NO_ROWS
from harness.audit.live import settle
from harness.audit.live.settle import CheckedReading, DisputedItem, still_there
from harness.audit.live.spool import SpoolLimitError, waves_of
from harness.broker_files.segments.key_share import KeyShare
from harness.judge.finding import Place
from harness.judge.verdict import UnknownReason

A, B = ("a", 0), ("b", 0)
BOTH = [A, B]
BUSY = UnknownReason("not-read", "busy")


def row(place: Place, offset: int, **more: Any) -> dict[str, Any]:
    facts = {"topic": place[0], "partition": place[1], "broker": 2, "offset": offset, "anomaly": "stuck-lso"}
    return {**facts, "key": None, "producer_id": 5, "shown_by": BATCH, **more}


def reading(**rows: Any) -> CheckedReading:
    unknown = rows.pop("unknown", {})
    return CheckedReading((), {**NO_ROWS, **rows}, unknown)


class Script:
    """Returns one reading after the other, and records the requests. ``gone``: offsets that brokers show no longer."""

    def __init__(self, *readings: CheckedReading, gone: Collection[int] = (), unanswered: Collection[int] = ()) -> None:
        self.readings = list(readings)
        self.gone, self.unanswered = gone, unanswered
        self.asked: list[Collection[Place]] = []
        self.evidence: set[DisputedItem] = set()

    def read(self, number: int, places: Collection[Place]) -> CheckedReading:
        self.asked.append(places)
        assert number == len(self.asked)
        return self.readings.pop(0)

    def still_there(self, evidence: Iterable[DisputedItem]) -> set[DisputedItem]:
        self.evidence = set(evidence)
        still = {shown for shown in self.evidence if shown.offset not in self.gone}
        return {replace(i, shown_by=settle.UNANSWERED) if i.offset in self.unanswered else i for i in still}

    def result(self) -> CheckedReading:
        return settle.read_until_settled(self.read, BOTH, self.still_there)


def test_what_agrees_and_a_difference_that_is_still_there_are_read_once() -> None:
    script = Script(reading(stuck_lso=[row(A, 1)], unknown={B: (BUSY,)}))
    result = script.result()
    assert (result.rows["stuck_lso"], result.unknown) == ([row(A, 1)], {B: (BUSY,)})
    assert script.asked == [BOTH]


def test_a_difference_that_goes_away_or_that_a_broker_cannot_show_again_is_not_reported() -> None:
    script = Script(reading(stuck_lso=[row(A, 1), row(B, 2)], unsure=[row(A, 1, shown_by=LIST)]), gone=[1])
    result = script.result()
    assert (result.rows["stuck_lso"], result.rows["unsure"], result.unknown) == ([row(B, 2)], [], {})
    assert script.asked == [BOTH]
    script = Script(reading(stuck_lso=[row(A, 1)]), reading(), unanswered=[1])
    assert script.result().rows["stuck_lso"] == []
    assert script.asked == [BOTH, {A}]


@pytest.mark.parametrize("table", ["aborted_to_committed", "committed_to_aborted", "missed_marker", "doubts"])
def test_a_difference_that_may_hide_others_and_goes_away_is_looked_for_again(table: str) -> None:
    script = Script(reading(**{table: [row(A, 1), row(B, 2)]}), reading(**{table: [row(A, 3)]}), gone=[1])
    assert script.result().rows[table] == [row(B, 2), row(A, 3)]
    assert script.asked == [BOTH, {A}]


@pytest.mark.parametrize(("total", "asked"), [(LISTED, [BOTH]), (LISTED + 1, [BOTH, {A}])])
def test_a_difference_that_goes_away_is_looked_for_again_if_others_were_not_collected(total: int, asked: Any) -> None:
    script = Script(reading(tombstone_divergence=[row(A, 1, total=total)]), reading(), gone=[1])
    assert script.result().rows["tombstone_divergence"] == []
    assert script.asked == asked


def test_what_goes_away_at_other_places_each_time_is_unknown_after_so_many_readings() -> None:
    readings = [reading(missed_marker=[row(A, number)]) for number in range(settle.READINGS)]
    script = Script(*readings, gone=range(settle.READINGS))
    result = script.result()
    assert (result.rows["missed_marker"], result.unknown) == ([], {A: (UnknownReason("changing", settle.CHANGING),)})
    assert script.readings == []


def test_only_partitions_in_doubt_are_read_again_and_the_others_stay_as_they_are() -> None:
    replicas = [row(A, 0), row(B, 0)]
    first = reading(doubts=[row(A, 1)], replicas=replicas, unknown={A: (BUSY,), B: (BUSY,)})
    script = Script(first, reading(replicas=[row(A, 9)]), gone=[1])
    result = script.result()
    assert result.rows["replicas"] == [row(B, 0), row(A, 9)]
    assert result.unknown == {B: (BUSY,)}


def test_a_damaged_answer_is_read_again_and_what_a_checker_raised_is_not_forgotten() -> None:
    raised = [{"name": "unexplained", "reason": "?"}]
    script = Script(reading(damaged=[row(A, 0)], raised=raised), reading())
    result = script.result()
    assert (result.rows["damaged"], result.rows["raised"]) == ([], raised)
    assert script.asked == [BOTH, {A}]


@pytest.mark.parametrize(
    ("facts", "holders", "asked"),
    [
        ({"key": b"K", "shown_by": RECORD}, (2, 3), {2}),
        ({"key": b"K", "shown_by": RECORD}, (1, 3), {1, 3}),
        ({"key": b"K", "shown_by": LIST}, (1, 3), {2}),
        ({"key": b"K", "shown_by": BATCH}, (1, 3), {2}),
        ({}, (), {2}),
    ],
    ids=[
        "had the record itself",
        "had the record that broker 2 has not",
        "lists it as aborted",
        "has the batch",
        "no key is disputed",
    ],
)
def test_the_brokers_that_are_asked(facts: dict[str, Any], holders: tuple[int, ...], asked: set[int]) -> None:
    disputed = row(A, 1, **facts)
    states = [{**disputed, "broker": broker, "disputed": 1, "at": {}} for broker in holders]
    script = Script(reading(stuck_lso=[disputed], key_states=[*states, {**disputed, "disputed": 1, "at": None}]))
    script.result()
    assert {evidence.broker for evidence in script.evidence} == asked


@pytest.mark.parametrize(
    ("shown_by", "shown", "gone"), [(RECORD, {3}, {0, 2, 5, 30}), (BATCH, {2}, {3}), (LIST, {3}, {2})]
)
def test_what_a_broker_still_shows(shown_by: str, shown: set[int], gone: set[int]) -> None:
    """Of the batch at offset 2 only the record at offset 3 is left; producer 5 is listed as aborted from 3 on."""
    held = Held(10, 10, log_start=1, batches=(batch(3, base_offset=2), batch(7)), aborted=((5, 3), (6, 0)))
    cluster = audited({1: FakeBroker({TP: [held]})})
    there = [still_there(cluster, [DisputedItem(1, TP, offset, shown_by, 5)]) for offset in sorted(shown | gone)]
    assert {item.offset for items in there for item in items} == shown


def test_what_cannot_be_asked_is_unanswered() -> None:
    evidence = {DisputedItem(broker, TP, 3, RECORD, None) for broker in (1, 2)}
    held = Held(10, 10, batches=(batch(7),))
    for failure in ({"dies_after": 0}, {"error": NOT_LEADER}):
        brokers = {1: FakeBroker({TP: [held]}), 2: FakeBroker({TP: [held]}, **failure)}
        assert still_there(audited(brokers), evidence) == {DisputedItem(2, TP, 3, settle.UNANSWERED, None)}


def test_many_partitions_are_looked_up_in_one_request_and_what_it_has_no_room_for_in_further_ones() -> None:
    places = [("t", number) for number in range(3)]
    held = Held(10, 10, batches=(batch(3), batch(7)))
    broker = FakeBroker({place: [held] for place in places})
    there = {DisputedItem(1, place, 3, RECORD, None) for place in places}
    other = {DisputedItem(1, places[1], offset, RECORD, None) for offset in (5, 7)}
    gone = DisputedItem(1, places[1], 5, RECORD, None)
    assert still_there(audited({1: broker}), there | other) == (there | other) - {gone}
    assert len(broker.named("Fetch")) == 3
    broker = FakeBroker({place: [Held(10, 10, batches=(batch(3),))] for place in places}, answer_bytes=1)
    evidence = {DisputedItem(1, place, 3, RECORD, None) for place in places}
    assert still_there(audited({1: broker}), evidence) == evidence
    assert len(broker.named("Fetch")) == 3


def test_differences_past_a_limit_are_not_read_and_leave_the_partition_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "MOST_LOOKED_UP", 2)
    script = Script(reading(stuck_lso=[row(A, offset) for offset in range(5)]), gone={0, 1})
    settled = script.result()
    assert {item.offset for item in script.evidence} == {0, 1}
    assert settled.rows["stuck_lso"] == []
    text = "3 of 5 differences were not looked up again, and are not reported"
    assert settled.unknown == {A: (UnknownReason("not-looked-up", text),)}


def test_readings_of_waves_are_one_and_an_error_of_a_checker_is_reported_once() -> None:
    raised = [{"name": "unexplained", "reason": "?"}]
    waves = [reading(stuck_lso=[row(A, 1)], raised=raised), reading(stuck_lso=[row(B, 2)], raised=raised)]
    both = settle.merged([*waves, reading(unknown={("c", 0): (BUSY,)})])
    assert (both.rows["stuck_lso"], both.rows["raised"]) == ([row(A, 1), row(B, 2)], raised)
    assert both.unknown == {("c", 0): (BUSY,)}


def test_a_wave_has_at_most_so_many_bytes_and_a_larger_partition_is_one_of_its_own() -> None:
    sizes = {("t", number): size for number, size in enumerate((4, 5, 2, 30, 0, 9, 1))}
    numbers = [[number for _, number in wave] for wave in waves_of(sizes, 10)]
    assert numbers == [[0, 1], [2], [3], [4, 5, 6]]
    assert waves_of({}, 10) == []


def test_too_much_data_is_read_by_shares_of_its_keys() -> None:
    asked = []

    def read(share: KeyShare) -> CheckedReading:
        asked.append((share.number, share.count))
        if share.count < 2 or (share.number == 1 and share.count < most):
            raise SpoolLimitError("it takes 5 MiB")
        stuck = row(A, 1, key=b"K" if share.number else None)
        return reading(stuck_lso=[stuck, row(A, share.number + 2)], raised=raised, unknown={B: (BUSY,)})

    most, raised = 4, [{"name": "unexplained", "reason": "?"}]
    result = settle.read_in_shares(read, BOTH)
    assert asked == [(0, 1), (0, 2), (1, 2), (1, 4), (3, 4)]
    keys = {row["offset"]: row["key"] for row in result.rows["stuck_lso"]}
    assert (keys, len(result.rows["stuck_lso"])) == ({1: b"K", 2: None, 3: None, 5: None}, 4)
    assert (result.unknown, result.rows["raised"]) == ({B: (BUSY,)}, raised)
    most = settle.MOST_SHARES * 2
    text = "it takes 5 MiB, even for one of 256 parts of its keys"
    assert settle.read_in_shares(read, [A]).unknown == {A: (UnknownReason("too-large", text),)}
