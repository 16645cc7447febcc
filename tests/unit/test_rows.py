"""Walks by rows of numbers: the same as the walk state by state, and symmetry leaves out only other names."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from walks import PLENTY, by_state, lengths

from harness.models.log.systems import REDPANDA
from harness.models.walk.rows import Rows, walk
from harness.models.walk.state_space import ADD, HAND_OVER, LEADER, REASSIGN, REMOVE, Bound, State, StateSpace
from harness.models.world.groups import NEW, OLD

WRITES = Bound(writes=2, transactions=0)
TXN = Bound(writes=1, transactions=1)
TWO_KEYS = Bound(keys=("K", "L"), writes=1, transactions=1)
BOUNDS = [
    WRITES,
    replace(WRITES, change=LEADER),
    replace(WRITES, change=ADD),
    replace(WRITES, change=REMOVE, gate=True),
    replace(WRITES, change=HAND_OVER, outage=False, gate=True),
    replace(WRITES, change=REASSIGN),
    TXN,
    replace(TXN, epoch_bump=True, coordinator=OLD),
    replace(TWO_KEYS, writes=0, coordinator=NEW),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
def test_the_result_is_that_of_the_walk_state_by_state(bound: Bound) -> None:
    explored = walk(StateSpace(bound), most_states=PLENTY)
    assert explored == by_state(StateSpace(bound))
    assert explored.is_whole


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("system", ["kafka", "redpanda"])
@pytest.mark.parametrize("change", [LEADER, ADD, REMOVE, REASSIGN])
def test_so_it_is_with_coordination(change: str, system: str, *, delayed: bool) -> None:
    bound = Bound(writes=1, transactions=0, change=change)
    how: dict[str, Any] = {"coordinated": True, "delayed": delayed, "without": frozenset({"mtro-includes-offline"})}
    how |= {"system": REDPANDA} if system == "redpanda" else {}
    assert walk(StateSpace(bound, **how), most_states=PLENTY) == by_state(StateSpace(bound, **how))


@pytest.mark.parametrize("bound", [replace(WRITES, change=HAND_OVER), TXN], ids=repr)
@pytest.mark.parametrize(
    "how", [{"first_only": True}, {"most_states": 1}, {"most_states": 500}, {"most_states": 2_000}]
)
def test_walks_that_end_early_end_at_the_same_state(bound: Bound, how: dict[str, Any]) -> None:
    explored = walk(StateSpace(bound), **{"most_states": PLENTY, **how})
    assert explored == by_state(StateSpace(bound), **how)
    assert not explored.is_whole


SYMMETRIC = [
    replace(WRITES, change=LEADER),
    replace(WRITES, change=LEADER, outage=False),
    replace(WRITES, change=REMOVE, outage=False),
    replace(WRITES, change=HAND_OVER, outage=False, gate=True),
    replace(WRITES, change=REASSIGN),
    replace(WRITES, writes=1, transactions=1, change=REMOVE, outage=False),
]


@pytest.mark.parametrize("bound", SYMMETRIC, ids=repr)
def test_brokers_that_may_change_places_count_once(bound: Bound) -> None:
    """Every cleaner runs here: as many states as the whole graph has that differ by more than names."""
    space = StateSpace(bound, reduced=False, symmetric=True)
    rows, space_in_rows = set[tuple[int, ...]](), Rows(space)

    def noted(state: State) -> Iterator[str]:
        rows.add(space_in_rows.row(state))
        yield from space.wrong(state)

    complete = by_state(space, noted)
    explored = walk(StateSpace(bound, reduced=False, symmetric=True), most_states=PLENTY)
    assert complete.states == by_state(StateSpace(bound, reduced=False)).states
    assert explored.states == len(rows) <= complete.states
    assert (explored.states < complete.states) == (bound.change == LEADER or not bound.outage)
    assert lengths(explored) == lengths(complete)
    assert (explored.depth, explored.is_whole) == (complete.depth, True)


@pytest.mark.parametrize("bound", [*SYMMETRIC, TWO_KEYS, replace(TWO_KEYS, writes=0, change=LEADER)], ids=repr)
def test_symmetry_and_cleaners_left_alone_leave_nothing_out_together(bound: Bound) -> None:
    complete = walk(StateSpace(bound, reduced=False), most_states=PLENTY)
    few = walk(StateSpace(bound, symmetric=True), most_states=PLENTY)
    assert complete.is_whole
    assert few.states < complete.states
    assert lengths(few) == lengths(complete)


@pytest.mark.parametrize("bound", [TWO_KEYS, replace(TWO_KEYS, coordinator=NEW)], ids=repr)
def test_keys_that_may_change_places_count_once(bound: Bound) -> None:
    """Each state with a record has a counterpart in which the keys have changed names."""
    space = StateSpace(bound)
    unwritten: set[State] = set()

    def noted(state: State) -> Iterator[str]:
        if not space.parts.clients[state.clients].truth.wrote:
            unwritten.add(state)
        yield from space.wrong(state)

    complete = by_state(space, noted)
    explored = walk(StateSpace(bound, symmetric=True), most_states=PLENTY)
    assert 2 * explored.states - len(unwritten) == complete.states
    assert lengths(explored) == lengths(complete)


@pytest.mark.parametrize(
    "bound", [replace(WRITES, change=LEADER), replace(WRITES, change=HAND_OVER, outage=False, gate=True)], ids=repr
)
def test_a_shortest_way_can_be_gone_under_the_names_of_its_brokers(bound: Bound) -> None:
    explored = walk(StateSpace(bound, symmetric=True), most_states=PLENTY)
    assert explored.wrong
    plain = StateSpace(bound, reduced=False)
    for name, steps in explored.wrong.items():
        state = plain.start
        for step in steps:
            state = dict(plain.following(state))[step]
        assert name in set(plain.wrong(state))
