"""Sweeps of random runs: two judges find the same, all four anomalies, and nothing without an outage."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from described import described
from pyspark.sql import SparkSession

from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.model_checking.explore.random_runs import (
    ORACLE,
    CheckerResults,
    RunStatistics,
    SweepResult,
    check_runs,
    found_by_checkers,
    partitioned_session,
    sweep,
)
from harness.model_checking.explore.random_schedules import NO_OUTAGE, RandomSchedule, draw, is_replayable, is_wrong
from harness.models.world.groups import AT_RELOAD, BEGINS_AT_ABORTED, DELETED_BACK, FROZEN
from harness.models.world.world import Rules
from harness.schedules.catalog import Anomaly

RUNS = 600
WITHOUT = Rules(coordinated=True, without=frozenset({"markers-wait", "tombstones-wait"}))
ONCE_APART = (5339, 7101, 8114, 11541)
"""Seeds on which the two judges once disagreed: what a .txnindex shows, and about what."""
SPANNED = (
    "p puts K; t deletes K; 2 leaves; t aborts; t deletes K; t commits; 1 cleans; time passes; 1 cleans; 1 cleans; "
    "time passes; t deletes K; t aborts; 1 cleans; 2 returns"
)
"""Broker 2 rightly applies the last ABORT to the first delete. It never had the commit in between."""


@pytest.fixture(scope="module")
def swept(spark: SparkSession) -> SweepResult:
    ticks: list[int] = []
    found = sweep(spark, Rules(), range(RUNS), lambda tally: ticks.append(tally.runs))
    assert ticks[-1] == RUNS
    return found


def judged(spark: SparkSession, ways: Sequence[RandomSchedule]) -> CheckerResults:
    return check_runs(partitioned_session(spark), range(len(ways)), ways.__getitem__)


def test_all_four_are_found_and_both_judges_agree(swept: SweepResult) -> None:
    assert swept.statistics.amiss == {}
    assert set(swept.statistics.seeds_by_anomaly) == set(Anomaly)
    assert swept.statistics.verdict == ANOMALY
    assert sum(map(len, swept.statistics.seeds_by_anomaly.values())) <= swept.statistics.exposed < RUNS


def test_every_run_that_was_found_is_one_by_its_state(swept: SweepResult) -> None:
    for name, seeds in swept.statistics.seeds_by_anomaly.items():
        wrong = [seed for seed in range(RUNS) if is_wrong(draw(seed, Rules()), name)]
        assert seeds == wrong


def test_the_smallest_schedules_lead_there_and_can_be_replayed(swept: SweepResult) -> None:
    for name, way in swept.smallest.items():
        assert is_wrong(way, name)
        assert is_replayable(name, way)
        assert len(way.steps) <= 13


def test_what_goes_wrong_for_groups_has_an_anomaly_of_the_same_replica(spark: SparkSession) -> None:
    found = sweep(spark, Rules(of_groups=True), range(RUNS), lambda _: None)
    assert found.statistics.amiss == {}
    assert set(found.statistics.seeds_by_consequence) == {
        *(FROZEN, DELETED_BACK, BEGINS_AT_ABORTED),
        *(name + AT_RELOAD for name in (FROZEN, DELETED_BACK)),
    }
    for name in found.statistics.seeds_by_consequence:
        assert is_wrong(found.smallest[name], name)
        assert len(found.smallest[name].steps) <= 12


@pytest.mark.commit
def test_both_judges_agree_where_they_once_did_not(spark: SparkSession) -> None:
    tally = RunStatistics()
    tally.add(len(ONCE_APART), judged(spark, [draw(seed, Rules()) for seed in ONCE_APART]))
    assert tally.amiss == {}


def test_nothing_is_found_without_an_outage(spark: SparkSession) -> None:
    tally = RunStatistics()
    tally.add(200, check_runs(partitioned_session(spark), range(200), partial(draw, rules=Rules(), outage=NO_OUTAGE)))
    assert (tally.exposed, tally.seeds_by_anomaly, tally.amiss) == (0, {}, {})
    assert tally.verdict == UNKNOWN


@pytest.mark.parametrize("redpanda", [False, True], ids=["sim-kafka", "sim-redpanda"])
def test_rules_of_coordination_protect_and_without_them_nothing_does(spark: SparkSession, *, redpanda: bool) -> None:
    protected, bare = (
        sweep(spark, replace(rules, redpanda=redpanda), range(250), lambda _: None).statistics
        for rules in (Rules(coordinated=True), WITHOUT)
    )
    assert (protected.verdict, protected.seeds_by_anomaly) == (CLEAN, {})
    assert protected.exposed
    assert bare.verdict == ANOMALY
    assert {Anomaly.STUCK_LSO, Anomaly.TOMBSTONE_DIVERGENCE} <= set(bare.seeds_by_anomaly)


@pytest.mark.commit
def test_a_deletion_inside_a_span_of_the_index_was_never_there(spark: SparkSession) -> None:
    """Found by a sweep: the checkers took a delete that a replica had never had for one that it hides."""
    way = RandomSchedule(0, Rules(), described(SPANNED))
    found = judged(spark, [way])
    assert found_by_checkers(found) == {("0", 2, str(Anomaly.TOMBSTONE_DIVERGENCE))}


@pytest.mark.commit
@pytest.mark.parametrize("name", [*Anomaly, ORACLE])
def test_judges_that_differ_forbid_a_verdict(name: str) -> None:
    row = {"run": "3", "broker": 2, "anomaly": str(Anomaly.STUCK_LSO)}
    rows = {ORACLE: [row]} if name == ORACLE else {"stuck_lso": [{**row, "anomaly": name}]}
    tally = RunStatistics()
    tally.add(10, CheckerResults(rows, {}))
    assert tally.verdict == UNKNOWN
    assert not tally.seeds_by_anomaly
    ((what, where),) = tally.amiss.items()
    assert what == ("the model's state alone shows" if name == ORACLE else "checkers alone find")
    assert where == [f"seed 3, broker 2: {Anomaly.STUCK_LSO if name == ORACLE else name}"]


@pytest.mark.commit
def test_a_checker_that_raises_forbids_a_verdict() -> None:
    tally = RunStatistics()
    tally.add(1, CheckerResults({}, {"doubts": "ValueError: no"}))
    assert tally.verdict == UNKNOWN
    assert tally.amiss == {"checkers that raised": ["doubts: ValueError: no"]}
