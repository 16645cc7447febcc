"""Small clusters, walked to the end: what goes wrong without coordination, with it, and without each of its rules."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from walks import PLENTY, by_state, lengths, ways

from harness.model_checking.explore.cases import MESSAGES_MATTER
from harness.models.walk.exhaustive import Explored
from harness.models.walk.rows import walk
from harness.models.walk.state_space import ADD, HAND_OVER, LEADER, NO_CHANGE, REASSIGN, REMOVE, Bound, StateSpace
from harness.models.world.coordination import RULES
from harness.schedules.catalog import Anomaly

BY_CHANGE = {change: Bound(writes=2, transactions=0, change=change) for change in (NO_CHANGE, LEADER, ADD, REMOVE)}
DELETED_AND_GONE = "p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"


@cache
def walked(bound: Bound, *, first_only: bool = False, **how: Any) -> Explored:
    return walk(StateSpace(bound, **how), most_states=PLENTY, first_only=first_only)


def coordinated(bound: Bound, *without: str, **how: Any) -> Explored:
    return walked(bound, coordinated=True, without=frozenset(without), **how)


def assert_clean(found: Explored) -> None:
    assert found.is_whole
    assert found.wrong == {}


def test_each_replica_by_itself_leads_to_all_four() -> None:
    found = walked(Bound(writes=1, transactions=2))
    assert found.is_whole
    assert found.states == 474_603
    assert ways(found) == {
        Anomaly.TOMBSTONE_DIVERGENCE:
            "p puts K; 2 leaves; t deletes K; t commits; 1 cleans; time passes; 1 cleans; 2 returns",
        Anomaly.STUCK_LSO:
            "t puts K; 2 leaves; t aborts; time passes; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns",
        Anomaly.ABORTED_TO_COMMITTED:
            "t puts K; 2 leaves; t aborts; t puts K; t commits; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns",
        Anomaly.COMMITTED_TO_ABORTED:
            "t puts K; p puts K; 2 leaves; t commits; t puts K; t aborts; 1 cleans; 1 cleans; time passes; 1 cleans; "
            "2 returns",
    }  # fmt: skip


@pytest.mark.parametrize("bound", [
    Bound(writes=2, transactions=0), Bound(writes=2, transactions=0, change=REMOVE),
    Bound(writes=1, transactions=1), Bound(writes=0, transactions=2, epoch_bump=True),
    Bound(writes=2, transactions=0, change=HAND_OVER, outage=False, gate=True),
    Bound(writes=2, transactions=0, change=REASSIGN, gate=True),
], ids=repr)  # fmt: skip
def test_leaving_cleaners_alone_leaves_nothing_out(bound: Bound) -> None:
    """All cleaners, or only those that may make a difference: the same findings, in as many steps."""
    all_of_them, fewer = walked(bound, reduced=False), walked(bound)
    assert all_of_them.is_whole
    assert fewer.states < all_of_them.states
    assert lengths(fewer) == lengths(all_of_them)


@pytest.mark.commit("no change", "remove")
@pytest.mark.parametrize("change", BY_CHANGE)
def test_no_deleted_value_comes_back_with_coordination(change: str) -> None:
    assert ways(walked(BY_CHANGE[change]))[Anomaly.TOMBSTONE_DIVERGENCE] == DELETED_AND_GONE
    assert_clean(coordinated(BY_CHANGE[change]))


@pytest.mark.commit
def test_messages_that_are_late_lead_nowhere_else() -> None:
    found = coordinated(BY_CHANGE[NO_CHANGE], delayed=True)
    assert_clean(found)
    assert found.states > coordinated(BY_CHANGE[NO_CHANGE]).states


def test_a_replica_that_is_added_may_miss_a_marker_all_the_same() -> None:
    """The post's rule for added replicas: a source is compacted up to MTRO, but nothing says so of MXRO.

    A record that was copied before the source cleaned may have its marker removed there before the marker is copied.
    """
    found = by_state(StateSpace(Bound(writes=0, transactions=1, change=ADD), coordinated=True), first_only=True)
    assert ways(found) == {
        Anomaly.STUCK_LSO:
            "t puts K; t aborts; time passes; 2 reports; 3 reports; 4 is added; 4 copies a batch; 1 cleans; "
            "1 cleans; time passes; 1 cleans; 4 joins",
    }  # fmt: skip


UNASSIGNED = "p puts K; 2 leaves; p deletes K; 2 is unassigned"
GATED = {
    NO_CHANGE: (True, None),
    ADD: (True, None),
    HAND_OVER: (
        False,
        "p puts K; p deletes K; 2 cleans; time passes; 2 cleans; 4 is added; 4 copies a batch; 2 leads; 4 joins",
    ),
    REASSIGN: (True, f"{UNASSIGNED}; 1 cleans; time passes; 1 cleans; 2 is assigned again; 2 returns"),
}
"""By change: whether there is an outage too, and the way of a deleted value that comes back although nothing is cleaned
while an assigned replica is not in sync; None where there is none."""


@pytest.mark.parametrize("change", GATED)
def test_a_gate_is_passed_by_moves_alone(change: str) -> None:
    outage, way = GATED[change]
    found = walked(Bound(writes=2, transactions=0, change=change, outage=outage, gate=True))
    assert found.is_whole
    assert ways(found) == ({} if way is None else {Anomaly.TOMBSTONE_DIVERGENCE: way})


def test_coordination_does_not_help_a_replica_that_is_assigned_again_with_its_old_log() -> None:
    """A tombstone waits for assigned replicas. (With ``HAND_OVER`` all 373,811 states are right; it takes minutes.)"""
    found = coordinated(Bound(writes=2, transactions=0, change=REASSIGN, gate=True))
    assert (found.is_whole, found.states) == (True, 7_216)
    assert ways(found) == {
        Anomaly.TOMBSTONE_DIVERGENCE:
            f"{UNASSIGNED}; 1 cleans; 3 cleans; time passes; 3 reports; 1 cleans; 2 is assigned again; 2 returns",
    }  # fmt: skip


@pytest.mark.parametrize("change", [HAND_OVER, REASSIGN])
def test_a_gate_leaves_no_state_out_that_moves_lead_to_without_it(change: str) -> None:
    bound = Bound(writes=2, transactions=0, change=change)
    with_gate, without = walked(replace(bound, gate=True)), walked(bound)
    assert with_gate.states < without.states
    assert set(with_gate.wrong) == set(without.wrong) == {Anomaly.TOMBSTONE_DIVERGENCE}


NEEDED = [
    ("mtro-includes-offline", NO_CHANGE, 9), ("mtro-includes-offline", REMOVE, 8), ("all-have-reported", NO_CHANGE, 7),
    ("starts-from-distributed", LEADER, 8), ("added-is-counted", ADD, 12), ("clean-not-copied", ADD, 10),
    ("tombstones-wait", NO_CHANGE, 7),
]  # fmt: skip
"""Rules, the change with which a deleted value comes back without them, and in how many steps."""
COVERED = [
    ("never-backward", LEADER), ("never-backward", REMOVE), ("late-rpc-ignored", LEADER), ("late-rpc-ignored", REMOVE),
    ("starts-from-distributed", NO_CHANGE), ("added-is-counted", LEADER), ("clean-not-copied", LEADER),
]  # fmt: skip
"""Rules whose loss alone brings no deleted value back with that change, and all was seen."""


@pytest.mark.commit("no change", "remove")
@pytest.mark.parametrize(("rule", "change", "steps"), NEEDED)
def test_what_a_rule_is_good_for(rule: str, change: str, steps: int) -> None:
    found = coordinated(BY_CHANGE[change], rule, first_only=True)
    assert lengths(found) == {Anomaly.TOMBSTONE_DIVERGENCE: steps}


@pytest.mark.parametrize(("rule", "change"), COVERED)
def test_rules_that_others_cover(rule: str, change: str) -> None:
    assert_clean(coordinated(BY_CHANGE[change], rule, delayed=rule in MESSAGES_MATTER))


def test_without_waiting_markers_transactions_never_end() -> None:
    found = coordinated(Bound(writes=0, transactions=1), "markers-wait")
    assert found.is_whole
    assert set(found.wrong) == {Anomaly.STUCK_LSO}


@pytest.mark.commit
def test_names_of_rules_are_known() -> None:
    assert {rule for rule, *_ in (*NEEDED, *COVERED)} == set(RULES) - {"markers-wait"}
