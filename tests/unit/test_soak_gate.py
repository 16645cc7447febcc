"""Partitions that gates held during the outages of a round, by the controllers' log and the gates' own lines."""

from dataclasses import replace
from typing import Any

import pytest
from soaked import SMALL

from harness.broker_files.metadata_log.history import PartitionState
from harness.protect.gate.events import GAVE_UP, HELD, HELD_ALL, INSTALLED, RELEASED, RELEASED_ALL
from harness.run_folder.history import fault_times
from harness.soak.judge.gate_evidence import ReplicaOutage, judge_gates, of_last_topics, outages_in, removable_of
from harness.soak.play.round import gate_events_of

TP = ("t", 0)
OUT = ReplicaOutage(TP, 3, 10_000, 20_000, frozenset({1, 2}))
DELETED = {TP: [11_000]}


Events = list[tuple[int, str, int]]
"""Broker, event and time of each."""


def events(some: Events) -> list[dict[str, Any]]:
    place = {"topic": "t", "partition": 0}
    return [
        {"broker": broker, "event": name, "time_ms": ms, **({} if name in {HELD_ALL, RELEASED_ALL} else place)}
        for broker, name, ms in some
    ]


def held_by(broker: int, since: int = 12_000, until: int = 20_100) -> Events:
    return [(broker, HELD, since), (broker, RELEASED, until)]


@pytest.mark.parametrize(("by_1", "by_2", "problem"), [
    (held_by(1), held_by(2), None),
    (held_by(1, 9_000), held_by(2), None),
    (held_by(1), [], "2 is not seen to have held t-0 while broker 3 was out of the ISR"),
    ([], [], "1 is not seen to have held t-0 while broker 3 was out of the ISR"),
    (held_by(1, 1_000, 9_000), held_by(2), "1 is not seen to have held"),
    (held_by(1), [(2, HELD, 12_000)], "2 has held t-0 while"),
    (held_by(1), [(2, HELD, 12_000), (2, GAVE_UP, 13_000)], "2 gave up holding t-0"),
    # Its process ended, and so did its holds.
    (held_by(1), [(2, HELD, 12_000), (2, INSTALLED, 0)], None),
    (held_by(1), [(2, HELD, 12_000), (1, INSTALLED, 0)], "2 has held t-0 while"),
    (held_by(1), [(2, INSTALLED, 0)], "2 is not seen to have held"),
    # One that holds everything: its clock is not the controllers', or it hears nothing of them.
    (held_by(1), [(2, HELD_ALL, 9_000), (2, RELEASED_ALL, 21_000)], None),
    (held_by(1), [(2, HELD_ALL, 9_000), (2, RELEASED_ALL, 15_000)], "2 is not seen to have held"),
    (held_by(1), [(2, HELD_ALL, 9_000), (2, RELEASED_ALL, 15_000), *held_by(2, 15_000)], None),
    (held_by(1), [(2, HELD_ALL, 9_000)], "2 has held t-0 while"),
])  # fmt: skip
def test_every_broker_that_stayed_holds_what_is_exposed(by_1: Events, by_2: Events, problem: str | None) -> None:
    evidence = judge_gates([OUT], DELETED, events([*by_1, *by_2]))
    says = f"the gate of broker {problem}"
    assert evidence.problem is None if problem is None else str(evidence.problem).startswith(says)
    assert evidence.counts == {"outages": 1, "exposed": 1, "held": int(problem is None), "partitions": 1}


@pytest.mark.parametrize(("answer", "problem"), [("ok", "not seen to have held"), ("info", "not released it since")])
def test_what_was_held_of_a_deleted_topic_is_no_evidence_for_the_next_of_its_name(answer: str, problem: str) -> None:
    """Found by a soak (seed 691): the gate of a broker held a partition, and its topic was deleted meanwhile."""
    recreated = [
        {"f": "recreate topic", "type": "invoke", "op": 7, "topic": "t", "time_ms": 8_000},
        {"f": "recreate topic", "type": answer, "op": 7, "topic": "t", "time_ms": 9_500},
    ]
    logged = of_last_topics(events([(2, INSTALLED, 0), (2, HELD, 7_999), *held_by(1, 9_000)]), recreated)
    assert problem in str(judge_gates([OUT], DELETED, logged).problem)


def late(began_ms: int, ended_ms: int, broker: int = 2) -> list[dict[str, Any]]:
    """Return the events of a cleaner that does not look for work."""
    return [
        {"f": f, "type": type_, "time_ms": ms, "brokers": [broker]}
        for f, type_, ms in (
            ("inject late-cleaner", "invoke", began_ms - 5), ("inject late-cleaner", "ok", began_ms),
            ("heal late-cleaner", "invoke", ended_ms), ("heal late-cleaner", "info", ended_ms + 5),
            ("heal late-cleaner", "invoke", ended_ms + 900), ("heal late-cleaner", "ok", ended_ms + 1_000),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("faults", "has_problem"), [
    (late(9_000, 20_000), False),
    (late(10_001, 21_000), True),
    (late(9_000, 19_999), True),
    (late(9_000, 21_000, broker=3), True),
    ([], True),
])  # fmt: skip
def test_a_cleaner_that_does_not_look_has_nothing_to_hold(faults: list[dict[str, Any]], *, has_problem: bool) -> None:
    evidence = judge_gates([OUT], DELETED, events(held_by(1)), faults=fault_times(faults))
    assert (evidence.problem is not None) is has_problem
    alone = replace(OUT, stayed=frozenset({2}))
    assert judge_gates([alone], DELETED, [], faults=fault_times(faults)).counts["exposed"] == int(has_problem)


AHEAD_MS = 3_600_000


@pytest.mark.parametrize(("out", "some"), [
    (OUT, [*held_by(1), *held_by(2, 12_000 + AHEAD_MS, 20_100 + AHEAD_MS)]),
    (OUT, [*held_by(1), (2, HELD_ALL, 9_000 + AHEAD_MS), (2, HELD_ALL, 19_000), (2, RELEASED_ALL, 20_200)]),
    (replace(OUT, began_ms=10_000 + AHEAD_MS, ended_ms=20_000 + AHEAD_MS), [*held_by(1), *held_by(2)]),
])  # fmt: skip
def test_times_of_a_clock_that_was_ahead_are_put_right(out: ReplicaOutage, some: Events) -> None:
    """The clock of a broker with a gate, or of the controller that recorded the outage."""
    assert judge_gates([out], DELETED, events(some), ended_ms=30_000).problem is None
    assert judge_gates([out], DELETED, events(some), ended_ms=30_000 + AHEAD_MS).problem is not None


def test_a_round_has_the_events_of_its_topics_and_since_it_began_those_of_all() -> None:
    of_round, other = {"topic": "soak-1-0", "time_ms": 3}, {"topic": "before", "time_ms": 4}
    of_all = {"event": HELD_ALL, "time_ms": 5}
    assert gate_events_of(SMALL, [of_all, of_all, of_round, other, of_all], before=2) == [of_round, of_all]


@pytest.mark.parametrize("removable", [{}, {TP: [9_000]}, {TP: [16_000]}, {("t", 1): [11_000]}])
def test_an_outage_in_which_nothing_could_be_removed_exposes_nothing(removable: dict[Any, list[int]]) -> None:
    evidence = judge_gates([OUT], removable, [])
    assert evidence.problem == "the gates had nothing to hold: no partition was exposed"


def test_outages_are_read_off_the_isr() -> None:
    def state(time_ms: int, *isr: int) -> PartitionState:
        return PartitionState(0, 1, 0, 0, (1, 2, 3), isr, time_ms=time_ms)

    states = [state(0, 1, 2, 3), state(5, 1, 2), state(7, 1), state(8, 1, 2), state(9, 1, 2, 3), state(11, 1)]
    assert sorted(outages_in(TP, states), key=lambda outage: outage.broker) == [
        ReplicaOutage(TP, 2, 7, 8, frozenset({1})), ReplicaOutage(TP, 3, 5, 9, frozenset({1})),
    ]  # fmt: skip


def test_a_delete_and_the_end_of_a_transaction_can_be_removed() -> None:
    put = {"f": "produce", "topic": "t", "partition": 0}
    of_id = {"transactional_id": "id", "txn": 1}
    history = [
        {**put, "type": "ok", "time_ms": 1, "tombstone": True},
        {**put, "type": "ok", "time_ms": 2, "tombstone": False},
        {**put, **of_id, "type": "invoke", "time_ms": 3, "tombstone": False},
        {**of_id, "f": "commit", "type": "invoke", "time_ms": 4},
        {**of_id, "f": "commit", "type": "ok", "time_ms": 5},
    ]
    assert removable_of(history) == {TP: [1, 5]}
