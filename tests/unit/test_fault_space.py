"""Small clusters under faults: what goes wrong without each rule of the gate, and nothing with all of them."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from described import described
from walks import PLENTY, by_state, lengths, ways

from harness.cli.develop import explore as command
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.model_checking.explore import cases as cases_module
from harness.model_checking.explore.cases import ISR_GATE, ISR_GATE_MARKERS, PROPOSALS, FaultCase, cases, fault_cases
from harness.models.faults import state as by
from harness.models.faults.space import FaultSpace
from harness.models.faults.state import FaultBound
from harness.models.log.invariants import LOST_VALUE
from harness.models.walk.exhaustive import Explored
from harness.models.walk.rows import walk
from harness.models.walk.state_space import Bound
from harness.schedules.catalog import Anomaly
from harness.targets import SIM_KAFKA

KAFKAS = frozenset(by.KAFKAS_RULES)
GATE = KAFKAS | frozenset(by.GATE_RULES)
DIVERGES = Anomaly.TOMBSTONE_DIVERGENCE
REMOVED = "time passes; 1 cleans"


def bound(
    *faults: str, elections: int = 0, rules: Collection[str] = GATE, waits: str = by.ALL_WAITS, **more: Any
) -> FaultBound:
    return FaultBound(faults=frozenset(faults), elections=elections, rules=frozenset(rules), waits=waits, **more)


def name(limits: FaultBound) -> str:
    return "+".join([*sorted(limits.faults), limits.waits, str(limits.brokers)])


def walked(limits: FaultBound, *, symmetric: bool = True) -> Explored:
    explored = walk(FaultSpace(limits, symmetric=symmetric), most_states=PLENTY)
    assert explored.is_whole
    return explored


NEEDED = {
    by.NOT_IN_SYNC: (bound(by.OUTAGE), 1_023, 1_357,
        f"p puts K; 2 leaves; p deletes K; 1 cleans; {REMOVED}; 2 returns"),
    by.ADDING_COUNTS: (bound(by.RELAY), 2_902, 6_643,
        f"p puts K; p deletes K; 4 is added; 4 copies a batch; 1 cleans; {REMOVED}; 4 joins"),
    by.IMAGE_AGE: (bound(by.OUTAGE, by.ISOLATED, elections=1), 12_868, 13_193,
        ("p puts K; 3 is cut off from the controller; 2 leaves; p deletes K; 3 cleans; time passes; 3 cleans; "
        "3 is reconnected; 3 leads; 2 returns")),
    by.ADDED_BEGINS_EMPTY: (bound(by.OUTAGE, by.REASSIGN), 2_659, 3_173,
        f"p puts K; 2 leaves; p deletes K; 2 is unassigned; 1 cleans; {REMOVED}; 2 is assigned again; 2 returns"),
    by.ANEW_WITH_LEADER: (bound(by.RELAY, elections=1), 8_909, 9_722,
        "p puts K; p deletes K; 2 cleans; time passes; 2 cleans; 4 is added; 4 copies a batch; 2 leads; 4 joins"),
    by.BELOW_HIGH_WATERMARK: (bound(by.LAG), 1_809, 2_465,
        f"p puts K; 2 lags; p deletes K; 1 cleans; {REMOVED}; 2 catches up"),
    by.FIRST_COPY_ON_DISK: (bound(by.DISK, by.RESTART, elections=1), 3_292, 3_371,
        ("p puts K; p deletes K; 3 cleans; time passes; 3 cleans; 2 loses its disk; 2 copies a batch; 2 restarts; "
        "3 leads; 2 returns")),
    by.ANEW_AFTER_LOSS: (bound(by.POWER), 1_583, 1_034,
        f"p puts K; p deletes K; 1 cleans; {REMOVED}; 2 loses power, and its log from 1 on; 2 returns"),
    by.ANEW_AFTER_TRUNCATION: (bound(by.OUTAGE, by.LATE, by.UNCLEAN), 21_547, 22_647,
        "p puts K; 1's image is late; 2 leaves; p puts K; 1 cleans; 2 leads uncleanly; 1 returns"),
}  # fmt: skip
"""By rule: a cluster, its states with and without the rule, and without it the shortest way to a value that comes back.

The last one loses a value instead.
"""


@pytest.mark.parametrize("rule", NEEDED)
def test_each_rule_of_the_gate_is_needed(rule: str) -> None:
    limits, states, states_without, way = NEEDED[rule]
    explored, without = walked(limits), walked(replace(limits, rules=limits.rules - {rule}))
    assert (explored.states, explored.wrong) == (states, {})
    anomaly = LOST_VALUE if rule == by.ANEW_AFTER_TRUNCATION else DIVERGES
    assert (without.states, ways(without)) == (states_without, {anomaly: way})


def test_every_rule_that_the_gate_has_is_walked() -> None:
    assert set(NEEDED) == GATE


def test_an_unclean_election_loses_values_where_superseded_records_do_not_wait() -> None:
    """Nobody has deleted anything: the value that was superseded is gone, and the truncation removes the later one."""
    limits = bound(by.OUTAGE, by.UNCLEAN)
    assert walked(limits).wrong == {}
    without = GATE - {by.ANEW_AFTER_TRUNCATION}
    for waits, rules in ((by.NOTHING_WAITS, KAFKAS), (by.REMOVALS_WAIT, without), (by.COORDINATED, KAFKAS)):
        explored = walked(replace(limits, waits=waits, rules=rules))
        assert ways(explored)[LOST_VALUE] == "p puts K; 2 leaves; p puts K; 1 cleans; 2 leads uncleanly; 1 returns"
        closed = walked(replace(limits, waits=waits, rules=rules | {by.ANEW_AFTER_TRUNCATION}))
        assert LOST_VALUE not in closed.wrong


def test_the_last_member_of_the_isr_that_loses_power_loses_values_of_others() -> None:
    limits = bound(by.POWER, by.UNCLEAN)
    way = "p puts K; p puts K; 1 cleans; 2 loses power, and its log from 1 on; 2 leads uncleanly; 1 returns"
    assert ways(walked(replace(limits, rules=GATE - {by.ANEW_AFTER_TRUNCATION}))) == {LOST_VALUE: way}
    assert walked(limits).wrong == {}


@pytest.mark.parametrize("waits", [by.ALL_WAITS, by.REMOVALS_WAIT])
@pytest.mark.parametrize("brokers", [3, 4])
@pytest.mark.parametrize("faults", [
    (by.OUTAGE, by.ISOLATED), (by.LAG,), (by.RELAY,), (by.OUTAGE, by.REASSIGN), (by.DISK, by.RESTART),
    (by.POWER, by.UNCLEAN), (by.OUTAGE, by.UNCLEAN),
], ids="+".join)  # fmt: skip
def test_nothing_goes_wrong_with_every_rule(faults: tuple[str, ...], brokers: int, waits: str) -> None:
    assert walked(bound(*faults, elections=1, waits=waits, brokers=brokers)).wrong == {}


def test_coordination_needs_no_synced_tail_and_lets_an_old_log_in() -> None:
    """Every record that every replica's cleaner has passed is on every disk (``Cleaner.cleanSegments``)."""
    limits = bound(by.POWER, rules=KAFKAS, waits=by.COORDINATED)
    assert walked(limits).wrong == {}
    assert walked(replace(limits, faults=frozenset({by.RELAY}), elections=1)).wrong == {}
    assert list(walked(replace(limits, faults=frozenset({by.OUTAGE, by.REASSIGN}))).wrong) == [DIVERGES]


LIVENESS = {by.NOTHING_WAITS: (True, True), by.ALL_WAITS: (False, False), by.REMOVALS_WAIT: (True, False),
            by.COORDINATED: (True, False)}  # fmt: skip
"""By the records that wait: whether superseded values and tombstones of an outage are ever removed."""


@pytest.mark.parametrize("waits", LIVENESS)
def test_what_is_removed_while_a_replica_never_comes_back(waits: str) -> None:
    space = FaultSpace(bound(by.OUTAGE, waits=waits))
    gone = {"value": False, "tombstone": False}

    def noted(state: Any) -> list[str]:
        wrote = space.parts.clients[state.clients].truth.wrote
        # Both records come after broker 2 has left: its own log is empty.
        if state.away and len(wrote) == 2 and not list(space.parts.replicas[state.replica(2)].batches()):
            batches = space.parts.replicas[state.replica(1)].batches()
            offsets = {record.offset for batch in batches for record in batch.records}
            gone["value"] |= 0 not in offsets
            gone["tombstone"] |= wrote[1].deletes and 1 not in offsets
        return []

    by_state(space, noted)
    assert (gone["value"], gone["tombstone"]) == LIVENESS[waits]


BOUNDS = [
    bound(by.OUTAGE, by.LATE, elections=1),
    bound(by.OUTAGE, by.ISOLATED, by.UNCLEAN, waits=by.REMOVALS_WAIT),
    bound(by.LAG, elections=1, rules=GATE - {by.BELOW_HIGH_WATERMARK}),
    bound(by.DISK, by.RESTART, elections=1), bound(by.POWER, by.UNCLEAN), bound(by.RELAY, elections=1),
    bound(by.OUTAGE, by.REASSIGN, rules=KAFKAS, waits=by.COORDINATED),
    bound(by.POWER, clients=Bound(writes=0, transactions=1)),
]  # fmt: skip


@pytest.mark.parametrize("limits", BOUNDS, ids=name)
def test_compiled_loops_walk_the_same(limits: FaultBound) -> None:
    assert walked(limits, symmetric=False) == by_state(FaultSpace(limits))


@pytest.mark.parametrize("limits", [replace(BOUNDS[0], brokers=4), *BOUNDS[1:6]], ids=name)
def test_brokers_that_change_names_leave_nothing_out(limits: FaultBound) -> None:
    few, complete = walked(limits), walked(limits, symmetric=False)
    assert few.states <= complete.states
    assert lengths(few) == lengths(complete)
    assert few.depth == complete.depth


def test_a_shortest_way_can_be_gone_under_the_names_of_its_brokers() -> None:
    space = FaultSpace(replace(NEEDED[by.ANEW_WITH_LEADER][0], rules=KAFKAS))
    state = space.start
    steps = described(NEEDED[by.ANEW_WITH_LEADER][3])
    for step in steps[:-1]:
        state = dict(space.following(state))[step]
        assert not list(space.wrong(state))
    assert list(space.wrong(dict(space.following(state))[steps[-1]])) == [DIVERGES]


def test_elections_that_lose_records_take_plain_writes() -> None:
    with pytest.raises(ValueError, match="plain writes only"):
        FaultSpace(bound(by.OUTAGE, by.UNCLEAN, clients=Bound(writes=1, transactions=1)))


def chosen(*with_: str, without: tuple[str, ...] = (), faults: bool = False) -> list[FaultCase]:
    every = cases(SIM_KAFKA, with_=with_, without=without, faults=faults)
    return [case for case in every if isinstance(case, FaultCase)]


def test_cases_under_faults() -> None:
    gated = chosen(ISR_GATE)
    assert {case.bound.rules for case in gated} == {GATE}
    assert {case.bound.brokers for case in gated} == {3, 4}
    assert {fault for case in gated for fault in case.bound.faults} == set(by.FAULTS)
    assert len({case.title for case in gated}) == len(gated)
    assert gated[1].title == "3 brokers, 2 plain writes, 1 election, outage, reassigned"
    assert gated[-1].title == "3 brokers, 1 plain write, 1 transaction, 0 elections, outage, late-metadata"
    (rules,) = {case.bound.rules for case in chosen(ISR_GATE_MARKERS, without=(by.IMAGE_AGE,))}
    assert rules == GATE - {by.IMAGE_AGE}
    (rules,) = {case.bound.rules for case in chosen("coordinated", by.ANEW_AFTER_TRUNCATION)}
    assert rules == KAFKAS | {by.ANEW_AFTER_TRUNCATION}
    assert {case.bound.waits for case in chosen(ISR_GATE_MARKERS)} == {by.REMOVALS_WAIT}
    assert {(case.bound.waits, case.bound.rules) for case in chosen(faults=True)} == {(by.NOTHING_WAITS, KAFKAS)}
    assert {case.bound.waits for case in chosen("coordinated", faults=True)} == {by.COORDINATED}
    assert not chosen("coordinated")
    assert set(by.FURTHER_RULES) < set(PROPOSALS[SIM_KAFKA])


def test_the_command_tells_the_way_of_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_module, "fault_cases", lambda *arguments: fault_cases(*arguments)[:9:8])  # outage, lag
    options = ["--target", SIM_KAFKA, "--with", ISR_GATE, "--processes", "2"]
    assert CliRunner().invoke(command, options, standalone_mode=False).return_value == EXIT_CLEAN
    ran = CliRunner().invoke(command, [*options, "--without", by.NOT_IN_SYNC], standalone_mode=False)
    assert ran.return_value == EXIT_ANOMALY
    for way in ("outage) in 7 steps: p puts K; 2 leaves", "lag) in 8 steps: p puts K; 2 lags"):
        assert f"{DIVERGES} (3 brokers, 2 plain writes, 1 election, {way}" in ran.stdout
