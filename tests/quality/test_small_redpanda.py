"""Small clusters with Redpanda's compaction, walked whole: which of its rules are needed, and which are covered."""

from collections.abc import Hashable, Iterator
from functools import cache

import pytest
from walks import by_state, lengths, ways

from harness.model_checking.explore.cases import MESSAGES_MATTER
from harness.models.log import redpanda
from harness.models.log.systems import redpanda_without
from harness.models.walk.exhaustive import Explored
from harness.models.walk.rows import walk
from harness.models.walk.state_space import ADD, LEADER, NO_CHANGE, REMOVE, Bound, State, StateSpace
from harness.models.world import coordination
from harness.schedules.catalog import Anomaly


def writes(change: str) -> Bound:
    return Bound(writes=2, transactions=0, change=change)


def txn(change: str) -> Bound:
    return Bound(writes=0, transactions=1, change=change)


@cache
def walked(bound: Bound, *without: str, delayed: bool = False, first_only: bool = False) -> Explored:
    names = frozenset(without)
    small = StateSpace(bound, system=redpanda_without(names), coordinated=True, without=names, delayed=delayed)
    return walk(small, most_states=500_000, first_only=first_only)


@pytest.mark.commit("change='remove'")
@pytest.mark.parametrize(
    ("bound", "states"),
    [(writes(NO_CHANGE), 13_289), (writes(LEADER), 101_886), (writes(REMOVE), 15_027), (txn(LEADER), 82_217),
     (txn(ADD), 241_548), (txn(REMOVE), 10_171)],
    ids=repr,
)  # fmt: skip
def test_nothing_goes_wrong(bound: Bound, states: int) -> None:
    """Not with an added replica either, which Kafka's cleaner lets miss a marker under the same coordination."""
    found = walked(bound)
    assert (found.is_whole, found.wrong, found.states) == (True, {}, states)


NEEDED = [
    ("tombstones-wait", writes(NO_CHANGE), 7), ("markers-wait", txn(NO_CHANGE), 7),
    ("mtro-includes-offline", writes(NO_CHANGE), 9), ("mtro-includes-offline", txn(REMOVE), 8),
    ("all-have-reported", writes(NO_CHANGE), 7), ("all-have-reported", txn(NO_CHANGE), 7),
    ("starts-from-distributed", writes(LEADER), 8), ("starts-from-distributed", txn(LEADER), 8),
    ("added-is-counted", txn(ADD), 12), ("clean-not-copied", writes(ADD), 10), ("free-not-ended", txn(ADD), 10),
]  # fmt: skip
"""Rules, where something goes wrong without them, and in how many steps."""
COVERED = [
    ("never-backward", writes(NO_CHANGE)), ("late-rpc-ignored", writes(NO_CHANGE)),
    ("late-rpc-ignored", writes(LEADER)), ("late-rpc-ignored", txn(LEADER)), ("committed-is-plain", txn(LEADER)),
    ("tombstones-age", writes(LEADER)), ("markers-age", txn(LEADER)), ("snapshot-first", txn(LEADER)),
]  # fmt: skip
"""Rules whose loss alone changes nothing there, and all was seen."""


@pytest.mark.commit("change='no change'")
@pytest.mark.parametrize(("rule", "bound", "steps"), NEEDED, ids=repr)
def test_what_a_rule_is_good_for(rule: str, bound: Bound, steps: int) -> None:
    found = walked(bound, rule, first_only=True)
    name = Anomaly.STUCK_LSO if bound.transactions else Anomaly.TOMBSTONE_DIVERGENCE
    assert lengths(found) == {name: steps}


@pytest.mark.parametrize(("rule", "bound"), COVERED, ids=repr)
def test_rules_that_others_cover(rule: str, bound: Bound) -> None:
    found = walked(bound, rule, delayed=rule in MESSAGES_MATTER)
    assert (found.is_whole, found.wrong) == (True, {})


def test_an_added_replica_misses_a_marker_where_mxfo_is_what_the_post_says() -> None:
    found = walked(txn(ADD), "free-not-ended", first_only=True)
    assert ways(found) == {
        Anomaly.STUCK_LSO:
            "t puts K; t commits; 2 reports; 3 reports; 4 is added; 4 copies a batch; 1 cleans; time passes; "
            "1 cleans; 4 joins",
    }  # fmt: skip


def test_committed_data_that_stay_transactional_need_a_bound_that_waits_for_them() -> None:
    """Either rule covers the other's loss in a replica that is never away; without both its own log misleads it."""
    found = walked(txn(NO_CHANGE), "committed-is-plain", "free-not-ended")
    assert lengths(found) == {Anomaly.STUCK_LSO: 7}


@pytest.mark.parametrize(
    ("bound", "without"),
    [
        (txn(NO_CHANGE), ("never-backward",)),
        (txn(NO_CHANGE), ("late-rpc-ignored",)),
        (txn(NO_CHANGE), ("late-rpc-ignored", "mtro-includes-offline")),
        (Bound(writes=1, transactions=0, change=LEADER, outage=False), ("late-rpc-ignored",)),
    ],
    ids=repr,
)
def test_forgetting_messages_leaves_nothing_out(bound: Bound, without: tuple[str, ...]) -> None:
    """Every message by itself, at most once: replicas reach the same states as with only the relevant messages."""
    (few, few_replicas), (every, replicas) = (reached(bound, frozenset(without), reduced=one) for one in (True, False))
    assert few_replicas == replicas
    assert few.states <= every.states
    assert lengths(few) == lengths(every)


def reached(bound: Bound, without: frozenset[str], *, reduced: bool) -> tuple[Explored, set[Hashable]]:
    """Return the findings, and all states that clients, replicas and brokers reach, whatever is in flight."""
    system = redpanda_without(without)
    small = StateSpace(bound, system=system, coordinated=True, without=without, delayed=True, reduced=reduced)
    replicas: set[Hashable] = set()

    def wrong(state: State) -> Iterator[str]:
        held = tuple((broker, system.content(small.parts.replicas[number])) for broker, number in state.replicas)
        replicas.add((small.parts.clients[state.clients], held, state._replace(clients=0, replicas=(), protocol=None)))
        return small.wrong(state)

    found = by_state(small, wrong)
    assert found.is_whole
    return found, replicas


@pytest.mark.commit
def test_names_of_rules_are_known() -> None:
    assert {rule for rule, *_ in (*NEEDED, *COVERED)} == {*coordination.RULES, *redpanda.RULES}
