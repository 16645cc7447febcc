"""Small clusters with consumer groups, walked to the end: all that goes wrong for groups, and the shortest ways."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from walks import PLENTY, by_state, lengths, ways

from harness.models.log.invariants import violations
from harness.models.walk.exhaustive import Explored
from harness.models.walk.rows import walk
from harness.models.walk.state_space import ADD, LEADER, NO_CHANGE, REMOVE, Bound, State, StateSpace
from harness.models.world.groups import AT_RELOAD, BEGINS_AT_ABORTED, DELETED_BACK, FROZEN, NEW, OLD, SKIPS
from harness.models.world.groups import consequences as consequences_of
from harness.models.world.members import GROUP_BACK, MEMBER_BACK, NOT_LOADED, SCRIPTS

TWO_TXNS = Bound(keys=("K", "L"), writes=0, transactions=2, coordinator=NEW)
DELETES = Bound(writes=2, transactions=1, coordinator=NEW)

FREEZE = "t puts K; 2 leaves; t aborts; time passes; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns"
DELETED = "p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"
BEGINS = "t puts K; 2 leaves; t aborts; t puts L; t commits; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns"
SKIP = f"p puts K; {BEGINS}"
RELOAD = "p puts K; t puts K; p deletes K; t commits"
FREEZE_OF_DELETED = f"p puts K; {FREEZE}".replace("2 leaves; t aborts", "p deletes K; 2 leaves; t commits")
"""Broker 2 has the tombstone. The old coordinator keeps the pending offset all the same."""


@cache
def walked(bound: Bound, **how: Any) -> Explored:
    explored = walk(StateSpace(bound, **how), most_states=PLENTY)
    assert explored.is_whole
    return explored


OF_TWO_TXNS, OF_DELETES = {FROZEN: FREEZE, BEGINS_AT_ABORTED: BEGINS}, {FROZEN: FREEZE, DELETED_BACK: DELETED}
AT_RELOADS = {DELETED_BACK + AT_RELOAD: RELOAD, FROZEN + AT_RELOAD: FREEZE_OF_DELETED}


@pytest.mark.parametrize(("bound", "states", "transitions", "expected"), [
    *((replace(TWO_TXNS, coordinator=of), 31_908, 86_682, OF_TWO_TXNS) for of in (OLD, NEW)),
    (DELETES, 39_370, 101_880, OF_DELETES),
    (replace(DELETES, coordinator=OLD), 34_459, 88_984, OF_DELETES | AT_RELOADS),
])  # fmt: skip
def test_groups_freeze_aborted_offsets_count_and_deleted_ones_come_back(
    bound: Bound, states: int, transitions: int, expected: dict[str, str]
) -> None:
    found = walked(bound)
    assert (found.states, found.transitions) == (states, transitions)
    assert ways(found) == expected


def test_without_an_outage_only_the_old_coordinator_is_wrong() -> None:
    for bound in (TWO_TXNS, DELETES):
        assert ways(walked(replace(bound, outage=False))) == {}
    assert set(ways(walked(replace(DELETES, outage=False, coordinator=OLD)))) == {DELETED_BACK + AT_RELOAD}


def test_a_commit_two_transactions_and_two_partitions_have_all_four_and_no_other() -> None:
    found = walked(Bound(keys=("K", "L"), writes=1, transactions=2, coordinator=NEW))
    assert (found.states, found.transitions) == (868_998, 2_413_944)
    assert set(ways(found)) == {FROZEN, SKIPS, BEGINS_AT_ABORTED, DELETED_BACK}
    assert ways(found)[SKIPS] == SKIP


@pytest.mark.parametrize("bound", [TWO_TXNS, DELETES, replace(DELETES, coordinator=OLD)], ids=repr)
def test_every_consequence_has_an_anomaly_of_the_same_log(bound: Bound) -> None:
    """The errors for a group are found in the log, except the errors of the old coordinator."""
    small = StateSpace(bound)

    def unexplained(state: State) -> Iterator[str]:
        truth = small.parts.clients[state.clients].truth
        for _, number in state.replicas if not state.away else ():
            replica = small.parts.replicas[number]
            names = consequences_of(replica, truth, drops_pending=bound.coordinator == NEW)
            if any(not name.endswith(AT_RELOAD) for name in names) and not any(violations(replica, truth)):
                yield "unexplained"

    found = by_state(small, unexplained)
    assert (found.is_whole, found.wrong) == (True, {})


@pytest.mark.parametrize("bound", [replace(TWO_TXNS, transactions=1), replace(DELETES, transactions=0)], ids=repr)
def test_leaving_cleaners_alone_leaves_nothing_out(bound: Bound) -> None:
    all_of_them, fewer = walked(bound, reduced=False), walked(bound)
    assert fewer.states < all_of_them.states
    assert lengths(fewer) == lengths(all_of_them)


REMOVED = "1 cleans; time passes; 1 cleans; 2 returns"
JOINS, GROUP_DELETED = "m joins g (consumer)", "a deletes group g"
OF_MEMBERS = {
    "a member leaves, and its group is deleted": (
        820,
        {
            MEMBER_BACK: f"{JOINS}; 2 leaves; m leaves g; {REMOVED}",
            GROUP_BACK: f"{JOINS}; m leaves g; 2 leaves; {GROUP_DELETED}; {REMOVED}",
            NOT_LOADED: f"{JOINS}; 2 leaves; m leaves g; 1 cleans; {GROUP_DELETED}; time passes; 1 cleans; 2 returns",
        },
    ),
    "a classic group is upgraded": (
        371,
        {NOT_LOADED: f"m joins g (classic); m leaves g; 2 leaves; {JOINS}; {REMOVED}"},
    ),
    "a classic group is deleted, and is one of the consumer protocol later": (
        588,
        {
            GROUP_BACK: f"m joins g (classic); 2 leaves; {GROUP_DELETED}; {REMOVED}",
            NOT_LOADED: f"m joins g (classic); 2 leaves; {GROUP_DELETED}; {JOINS}; {REMOVED}",
        },
    ),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_coordinator_that_missed_tombstones_of_groups_may_not_load_at_all(script: str) -> None:
    bound = Bound(keys=(), writes=len(SCRIPTS[script]), transactions=0, coordinator=NEW, script=script)
    found = walked(bound)
    assert (found.states, ways(found)) == OF_MEMBERS[script]
    assert ways(walked(replace(bound, outage=False))) == {}
    assert ways(walked(bound, coordinated=True)) == {}


@pytest.mark.commit("no change", "remove")
@pytest.mark.parametrize(
    ("consequence", "change"),
    [*((DELETED_BACK, change) for change in (NO_CHANGE, LEADER, ADD, REMOVE)),
     *((FROZEN, change) for change in (NO_CHANGE, LEADER, REMOVE))],
)  # fmt: skip
def test_coordination_prevents(consequence: str, change: str) -> None:
    writes, transactions = (2, 0) if consequence == DELETED_BACK else (0, 1)
    bound = Bound(writes=writes, transactions=transactions, change=change, coordinator=NEW)
    assert set(ways(walked(bound))) == {consequence}
    assert ways(walked(bound, coordinated=True)) == {}
