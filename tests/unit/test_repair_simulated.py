"""Repairs of a simulated cluster under traffic, leader changes, broker deaths and SIGKILL of the repair."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from fakes.diverged import DivergedCluster, DurableJournal, Killed, KillAt, SimulatedTime, diverged

from harness.repair.service import Repairs
from harness.repair.state import Entry, needs_spare
from harness.repair.steps import RULES, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.repair.service import Outcome

SEEDS = 40
PATIENCE_S = 600.0
MOST_KILLS = 50


def entries_of(cluster: DivergedCluster, wrong: int) -> list[Entry]:
    return [
        Entry(
            partition,
            "id",
            one.replicas,
            one.leader,
            one.replicas[:-wrong],
            one.replicas[-wrong:],
            max(cluster.brokers) if needs_spare(one.replicas, one.min_insync) else None,
            audit="audit",
        )
        for partition, one in cluster.partitions.items()
    ]


def repair(
    cluster: DivergedCluster,
    entries: list[Entry],
    kills: KillAt | None = None,
    rules: Mapping[Rule, object] = RULES,
    journal: DurableJournal | None = None,
) -> list[Outcome]:
    """Repair, and go on after each kill."""
    journal, kill = journal or DurableJournal(), kills or KillAt()
    clock = SimulatedTime(cluster)
    journal.point = cluster.point = kill
    while True:
        repairs = Repairs(cluster, journal, cluster, cluster, clock, at_once=2, patience_s=PATIENCE_S, rules=rules)  # type: ignore[arg-type]
        try:
            outcomes = repairs.run(entries)
        except Killed:
            clock.wait_until(
                lambda due=clock.now_s() + cluster.random.randint(0, 10): clock.now_s() >= due, 20, "a person"
            )
            continue
        assert all(entry.is_done for entry in journal.entries().values()), outcomes
        return outcomes


def failures(cluster: DivergedCluster, before: Mapping[object, object]) -> list[str]:
    """Return what is not as it has to be after a repair."""
    cluster.settle()
    found = [text for partition in cluster.partitions for text in cluster.wrongs(partition)]
    found += cluster.violations
    for partition, one in cluster.partitions.items():
        if one.replicas != before[partition]:
            found.append(f"{partition}: the replicas are {one.replicas}, and were {before[partition]}")
        if set(one.replicas) != one.isr or set(one.logs) != one.isr:
            found.append(f"{partition}: the ISR is {one.isr}, and folders are on {set(one.logs)}")
    if cluster.settings != {topic: f"own-{topic}" for topic in cluster.settings} or cluster.found or cluster.limited:
        found.append(f"settings are left: {cluster.settings}, {cluster.found}, throttle {cluster.limited}")
    return found


SHAPES = [
    {"replicas": 3, "wrong": 1},
    {"replicas": 4, "wrong": 2},
    {"replicas": 2, "wrong": 1, "min_insync": 1, "spare": True},
    {"replicas": 3, "wrong": 2, "min_insync": 1},
    {"replicas": 3, "wrong": 1, "min_insync": 3, "spare": True},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("faults", [False, True])
def test_every_replica_is_right_in_the_end_and_all_else_as_before(shape: dict[str, int], faults: bool) -> None:  # noqa: FBT001
    for seed in range(SEEDS):
        cluster = diverged(Random(seed), faults=faults, partitions=3, **shape)  # type: ignore[arg-type]
        before = {partition: one.replicas for partition, one in cluster.partitions.items()}
        assert any(cluster.wrongs(partition) for partition in before)
        outcomes = repair(cluster, entries_of(cluster, shape["wrong"]))
        assert [one.why for one in outcomes] == [None] * 3, (seed, outcomes)
        assert failures(cluster, before) == [], seed
        assert all(one.copied_bytes >= one.replica_bytes > 0 for one in outcomes), outcomes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_repair_that_is_killed_at_any_moment_is_resumed(shape: dict[str, int]) -> None:
    counted = KillAt()
    repair(
        diverged(Random(1), partitions=2, **shape),
        entries_of(diverged(Random(1), partitions=2, **shape), shape["wrong"]),
        counted,
    )  # type: ignore[arg-type]
    assert counted.passed > 20
    for at in range(1, counted.passed + 1):
        cluster = diverged(Random(1), partitions=2, **shape)  # type: ignore[arg-type]
        before = {partition: one.replicas for partition, one in cluster.partitions.items()}
        repair(cluster, entries_of(cluster, shape["wrong"]), KillAt(at))
        assert failures(cluster, before) == [], at


class Often(KillAt):
    """Kills at one point of many."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random

    def __call__(self) -> None:
        if self.passed < MOST_KILLS and self.random.random() < 0.1:
            self.passed += 1
            raise Killed


def test_a_repair_that_is_killed_often_ends_right() -> None:
    for seed in range(SEEDS):
        cluster = diverged(Random(seed), partitions=3)
        before = {partition: one.replicas for partition, one in cluster.partitions.items()}
        repair(cluster, entries_of(cluster, 1), Often(Random(seed)))
        assert failures(cluster, before) == [], seed


def test_no_partition_is_repaired_twice_by_one_audit() -> None:
    cluster, journal = diverged(Random(1), faults=False), DurableJournal()
    entries = entries_of(cluster, 1)
    assert len(repair(cluster, entries, journal=journal)) == 2
    assert repair(cluster, entries, journal=journal) == []
    assert set(journal.entries()) == set(cluster.partitions)
    later = [replace(entry, audit="later") for entry in entries[:1]]
    assert [one.why for one in repair(cluster, later, journal=journal)] == [None]
    assert list(journal.entries()) == [entries[0].partition]


@pytest.mark.parametrize("rule", list(Rule))
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without any one of the rules, some repairs of the simulation end wrong."""
    without = {one: check for one, check in RULES.items() if one != rule}
    seen = []
    for seed in range(3 * SEEDS):
        shape = SHAPES[seed % 2]
        cluster = diverged(Random(seed), partitions=3, **shape)  # type: ignore[arg-type]
        before = {partition: one.replicas for partition, one in cluster.partitions.items()}
        repair(cluster, entries_of(cluster, shape["wrong"]), rules=without)
        seen += failures(cluster, before)
        if seen:
            return
    pytest.fail(f"no repair without the rule ended wrong: {rule}")
