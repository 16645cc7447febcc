"""Which leader epochs a replica received in full, on literal histories of one partition with replicas 1, 2 and 3."""

from dataclasses import replace

import pytest

from checkers.attribution.coverage import EpochCoverage
from harness.broker_files.metadata_log.history import PartitionHistory, PartitionState

ALL = (1, 2, 3)


def state(offset: int, leader: int, epoch: int, isr: tuple[int, ...] = ALL, **more: object) -> PartitionState:
    return PartitionState(offset, leader, epoch, offset, **{"replicas": ALL, "isr": isr, **more})  # type: ignore[arg-type]


def coverage(*states: PartitionState, since_creation: bool = True, **registrations: tuple[int, ...]) -> EpochCoverage:
    history = PartitionHistory("id", since_creation, states)
    return EpochCoverage(history, {int(name[1:]): offsets for name, offsets in registrations.items()})


def received(known: EpochCoverage, first: int = 0, last: int | None = None) -> set[int]:
    return {broker for broker in ALL if known.received(broker, first, last)}


AWAY = (state(1, 1, 0), state(2, 1, 0, (1, 3)), state(3, 1, 0))
"""Broker 2 leaves the ISR and comes back, while broker 1 leads."""


DIRECTORIES = state(1, 1, 0, directories=("A" * 22, "b1", "c1")), state(2, 1, 0, directories=("a1", "b1", "c2"))
UNASSIGNED = state(1, 1, 0), state(2, 1, 0, (1, 2), replicas=(1, 2)), state(3, 1, 0)
RECEIVED = {
    "nothing is known": (EpochCoverage(), set()),
    "nobody left the ISR": (coverage(state(1, 1, 0)), {1, 2, 3}),
    "a shrink without a new epoch": (coverage(*AWAY), {1, 3}),
    "the first leader after a snapshot is known": (coverage(state(1, 1, 0), state(2, 2, 1), since_creation=False), {1}),
    "the ISR before a snapshot is not known": (coverage(*AWAY, since_creation=False), {1}),
    "a leader that stays in the ISR": (coverage(*AWAY, state(4, 2, 1)), {1, 3}),
    "a leader that leaves the ISR later": (coverage(*AWAY, state(4, 2, 1, (2, 3)), state(5, 2, 1)), {3}),
    "an unclean election that is reported": (coverage(state(1, 1, 0), state(2, 1, 0, recovering=True)), set()),
    "a leader that was not in the ISR": (coverage(state(1, 1, 0, (1, 3)), state(2, 2, 1)), set()),
    "a replica that was unassigned and assigned again": (coverage(*UNASSIGNED), {1, 2}),
    "a log in another directory, and one that was not named before": (coverage(*DIRECTORIES), {1, 2}),
    "an epoch without a leader": (coverage(state(1, 1, 0), state(2, -1, 1, (1,)), state(3, 1, 2, (1,))), {1}),
}


@pytest.mark.parametrize(("known", "expected"), RECEIVED.values(), ids=RECEIVED)
def test_epochs_that_are_received(known: EpochCoverage, expected: set[int]) -> None:
    assert received(known) == expected


def test_the_last_records_of_an_epoch_are_received_by_staying_or_leading_or_as_nobody_leads_since() -> None:
    leaves_later = coverage(state(1, 1, 0), state(2, 3, 1), state(3, 3, 1, (1, 3)))
    assert received(leaves_later, 0, 0) == {1, 3}
    leads_before_it_leaves = coverage(state(1, 1, 0), state(2, 2, 1), state(3, 3, 2, (1, 3)))
    assert received(leads_before_it_leaves, 0, 0) == {*ALL}
    proof = coverage(state(1, 1, 0), state(2, -1, 1)).received(2, 1)
    assert proof is not None
    assert proof.reason == "no leader wrote anything since"


def test_epochs_that_are_not_in_the_history_are_not_received() -> None:
    history = coverage(state(1, 1, 4), since_creation=False)
    assert received(history, 4) == {1}
    assert received(history, 3) == set()
    assert received(history, 4, 5) == set()


def test_a_restart_since_is_an_assumption_also_where_restarts_are_not_known() -> None:
    history = coverage(state(5, 1, 0), _1=(2,), _3=(2, 9))
    assert [proof.assumptions != () for broker in (1, 3) if (proof := history.received(broker, 0))] == [False, True]
    history = EpochCoverage(PartitionHistory("", since_creation=False, states=(state(0, 1, 7),)))
    proof = history.received(1, 7)
    assert proof is not None
    assert "if it was restarted since" in proof.assumptions[0]
    assert proof.reason == "led leader epoch 7"


T_MS = 1_795_757_520_000
T = "2026-11-27 05:32:0{} UTC".format
LEFT = state(2, 1, 0, (1, 3), time_ms=T_MS)
GAPS = {
    "nothing": (EpochCoverage(), "no history in the metadata log"),
    "away": (
        coverage(state(1, 1, 0), LEFT, state(3, 1, 0, time_ms=T_MS + 1000)),
        f"out of the ISR from {T(0)} until {T(1)}",
    ),
    "still away": (coverage(state(1, 1, 0, time_ms=0), LEFT), f"out of the ISR from {T(0)} on"),
    "after a snapshot": (
        coverage(state(1, 1, 0), state(2, 1, 0, time_ms=T_MS), since_creation=False),
        "members of the ISR before the start of the metadata log are unknown",
    ),
    "the log starts later": (
        coverage(state(1, 1, 4), since_creation=False),
        "its history begins in leader epoch 4, after epoch 0 of the record in question",
    ),
    "unclean": (
        coverage(state(1, 1, 0), state(2, 1, 0, recovering=True, time_ms=T_MS)),
        f"the unclean election of {T(0)} may have lost records",
    ),
    "unassigned": (coverage(state(1, 1, 0), replace(LEFT, replicas=(1, 3)), state(3, 1, 0)), f"not assigned at {T(0)}"),
    "moved": (
        coverage(state(1, 1, 0, directories=("a", "b", "c")), state(2, 1, 0, directories=("a", "d", "c"))),
        "its log is in another directory since",
    ),
    "received": (coverage(state(1, 1, 0)), None),
}


@pytest.mark.parametrize(("known", "expected"), GAPS.values(), ids=GAPS)
def test_why_broker_2_is_not_shown_to_have_received_everything(known: EpochCoverage, expected: str | None) -> None:
    assert known.gap(2, 0) == expected
