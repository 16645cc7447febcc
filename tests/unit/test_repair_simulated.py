"""Repairs of a simulated cluster under traffic, leader changes, broker deaths and SIGKILL of the repair."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import pytest
from fakes.diverged import DivergedCluster, KillAt, SimulatedTime, diverged
from fakes.guarded import FakeChannel, FakeCluster, KilledError

from harness.kafka_api import TopicPartition
from harness.protect.guard.cluster import DIRTY_RATIO
from harness.protect.repair.channel import SIGN_S, ChannelHolds, RepairJournal, TakenOverError
from harness.protect.repair.service import RepairOutcome, Repairs, _ActiveRepair
from harness.protect.repair.steps import RULES, PartitionRepair, Rule, Rules, needs_spare

SEEDS = 40
PATIENCE_S = 600.0
MOST_KILLS = 50


@dataclass(frozen=True)
class Shape:
    """The last ``wrong`` of so many replicas are wrong; ``spare``: there is a broker more."""

    replicas: int = 3
    wrong: int = 1
    min_insync: int = 2
    spare: bool = False

    def cluster(self, seed: int, *, partitions: int = 3, faults: bool = True) -> DivergedCluster:
        return diverged(Random(seed), **asdict(self), partitions=partitions, faults=faults)  # noqa: S311

    def entries(self, cluster: DivergedCluster) -> list[PartitionRepair]:
        return [
            PartitionRepair(
                partition, "id", state.replicas, state.leader,
                state.replicas[: -self.wrong], state.replicas[-self.wrong :],
                max(cluster.brokers) if needs_spare(state.replicas, state.min_insync) else None, audit="audit",
            )
            for partition, state in cluster.partitions.items()
        ]  # fmt: skip


def empty_journal(kill: Callable[[], None] = lambda: None) -> RepairJournal:
    """Return a journal that is killed before and after each entry."""
    guarded = FakeCluster({})
    guarded.before = guarded.after = lambda name: kill() if name == "append" else None
    return RepairJournal(FakeChannel(guarded))


def repairing(cluster: Any, journal: RepairJournal, clock: SimulatedTime, holds: Any = None, **options: Any) -> Repairs:
    """Return repairs of a cluster that also has the throttle, and the holds unless there are others."""
    return Repairs(cluster, journal, holds or cluster, cluster, clock, **options)


def repair(
    cluster: DivergedCluster,
    entries: list[PartitionRepair],
    kills: KillAt | None = None,
    rules: Rules = RULES,
    journal: RepairJournal | None = None,
) -> list[RepairOutcome]:
    kill = kills or KillAt()
    journal, clock, cluster.point = journal or empty_journal(kill), SimulatedTime(cluster), kill
    while True:
        repairs = repairing(cluster, journal, clock, at_once=2, patience_s=PATIENCE_S, rules=rules)
        try:
            outcomes = repairs.run(entries)
        except KilledError:
            for _ in range(cluster.random.randint(0, 20)):
                cluster.tick()
            continue
        assert all(entry.is_done for entry in journal.entries().values()), outcomes
        return outcomes


def orders(cluster: DivergedCluster) -> dict[TopicPartition, tuple[int, ...]]:
    return {partition: replicated.replicas for partition, replicated in cluster.partitions.items()}


def failures(cluster: DivergedCluster, before: Mapping[TopicPartition, tuple[int, ...]]) -> list[str]:
    cluster.settle()
    deviations = [text for partition in cluster.partitions for text in cluster.wrongs(partition)]
    deviations += cluster.violations
    for partition, replicated in cluster.partitions.items():
        if replicated.replicas != before[partition]:
            deviations.append(f"{partition}: the replicas are {replicated.replicas}, and were {before[partition]}")
        if not set(replicated.replicas) == replicated.isr == set(replicated.logs):
            deviations.append(f"{partition}: the ISR is {replicated.isr}, and folders are on {set(replicated.logs)}")
    if cluster.settings != {topic: f"own-{topic}" for topic in cluster.settings} or cluster.previous or cluster.limited:
        deviations.append(f"settings are left: {cluster.settings}, {cluster.previous}, throttle {cluster.limited}")
    return deviations


SHAPES = [
    Shape(), Shape(replicas=4, wrong=2), Shape(replicas=2, min_insync=1, spare=True), Shape(wrong=2, min_insync=1),
    Shape(min_insync=3, spare=True),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("faults", [False, True])
def test_every_replica_is_right_in_the_end_and_all_else_as_before(shape: Shape, faults: bool) -> None:  # noqa: FBT001
    for seed in range(SEEDS):
        cluster = shape.cluster(seed, faults=faults)
        before = orders(cluster)
        assert any(cluster.wrongs(partition) for partition in before)
        outcomes = repair(cluster, shape.entries(cluster))
        assert [replicated.why for replicated in outcomes] == [None] * 3, (seed, outcomes)
        assert failures(cluster, before) == [], seed
        assert all(replicated.copied_bytes >= replicated.replica_bytes > 0 for replicated in outcomes), outcomes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_repair_that_is_killed_at_any_moment_is_resumed(shape: Shape) -> None:
    counted, first = KillAt(), shape.cluster(1, partitions=2)
    repair(first, shape.entries(first), counted)
    assert counted.passed > 20
    for at in range(1, counted.passed + 1):
        cluster = shape.cluster(1, partitions=2)
        before = orders(cluster)
        repair(cluster, shape.entries(cluster), KillAt(at))
        assert failures(cluster, before) == [], at


class Often(KillAt):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)  # noqa: S311

    def __call__(self) -> None:
        if self.passed < MOST_KILLS and self.random.random() < 0.1:
            self.passed += 1
            raise KilledError


def test_a_repair_that_is_killed_often_ends_right() -> None:
    for seed in range(SEEDS):
        cluster = SHAPES[0].cluster(seed)
        before = orders(cluster)
        repair(cluster, SHAPES[0].entries(cluster), Often(seed))
        assert failures(cluster, before) == [], seed


def test_no_partition_is_repaired_twice_by_one_audit() -> None:
    cluster, journal = SHAPES[0].cluster(1, partitions=2, faults=False), empty_journal()
    entries = SHAPES[0].entries(cluster)
    assert len(repair(cluster, entries, journal=journal)) == 2
    assert repair(cluster, entries, journal=journal) == []
    assert set(journal.entries()) == set(cluster.partitions)
    later = [replace(entry, audit="later") for entry in entries[:1]]
    assert [replicated.why for replicated in repair(cluster, later, journal=journal)] == [None]
    assert list(journal.entries()) == [entries[0].partition]
    journal.store(newer := replace(entries[1], audit="2026-11-25T10-20-30Z", is_done=True))
    repair(cluster, [replace(later[0], audit="2026-11-24T10-20-30Z")], journal=journal)
    assert journal.entries()[newer.partition] == newer, "an older audit does not forget it"


def test_a_topic_stays_paused_until_its_last_partition_is_done() -> None:
    cluster = SHAPES[0].cluster(1, partitions=3, faults=False)
    entries = [entry for entry in SHAPES[0].entries(cluster) if entry.partition[0] == "t0"]
    assert len(entries) == 2
    with patch.object(cluster, "release", wraps=cluster.release) as release:
        repairing(cluster, empty_journal(), SimulatedTime(cluster)).run(entries[:1])
        repairing(cluster, empty_journal(), SimulatedTime(cluster), at_once=1).run(entries)
    assert release.call_count == 2, "once for each run"


def test_a_partition_that_cannot_go_on_is_given_up_and_its_topic_stays_paused() -> None:
    cluster, journal = SHAPES[0].cluster(1, partitions=2, faults=False), empty_journal()
    entries = SHAPES[0].entries(cluster)
    stuck, other = entries
    cluster.down[stuck.wrong[0]] = 10**6
    for replicated in cluster.partitions.values():
        replicated.isr.discard(stuck.wrong[0])
        replicated.leader = next(iter(replicated.isr - {stuck.wrong[0]}))
    clock = SimulatedTime(cluster)
    steps: list[str] = []
    outcomes = repairing(cluster, journal, clock, patience_s=50, on_step=steps.append).run([stuck])
    assert outcomes[0].why == f"timed out after 50 s waiting for broker {stuck.wrong[0]} to be online"
    assert steps[-1].endswith(str(outcomes[0].why))
    assert cluster.held() == {stuck.partition[0]}
    assert cluster.limited
    assert not journal.entries()[stuck.partition].is_done
    cluster.down[stuck.wrong[0]] = 0
    resumed = repairing(cluster, journal, clock, patience_s=50).run([stuck, other])
    assert [replicated.why for replicated in resumed] == [None, None]
    assert (cluster.held(), cluster.limited) == (frozenset(), False)


def test_a_decision_replaces_a_killed_repair_that_copies_from_a_wrong_replica() -> None:
    cluster, journal = SHAPES[0].cluster(1, partitions=1, faults=False), empty_journal()
    (entry,) = SHAPES[0].entries(cluster)
    before = orders(cluster)
    journal.store(replace(entry, right=entry.wrong, wrong=entry.right, audit="mistaken"))
    assert [outcome.why for outcome in repair(cluster, [entry], journal=journal)] == [None]
    assert failures(cluster, before) == []
    assert repair(cluster, [], journal=journal) == []
    assert list(journal.entries()) == [entry.partition], "it is still known that this audit repaired it"


def test_a_topic_that_was_created_again_is_released_for_good() -> None:
    cluster, journal = SHAPES[0].cluster(1, partitions=1, faults=False), empty_journal()
    (entry,) = SHAPES[0].entries(cluster)
    journal.store(replace(entry, topic_id="another"))
    cluster.hold([entry.partition[0]])
    (outcome,) = repair(cluster, [], journal=journal)
    assert "created again" in str(outcome.why)
    assert (cluster.held(), cluster.limited) == (frozenset(), False)
    assert [outcome.why for outcome in repair(cluster, [replace(entry, audit="next")], journal=journal)] == [None]


def test_no_step_is_taken_on_an_old_observation() -> None:
    cluster = SHAPES[0].cluster(1, partitions=2, faults=False)
    clock, steps = SimulatedTime(cluster), []
    repairs = repairing(cluster, empty_journal(), clock, at_once=2)

    def slow(active: Any, _observed: Any) -> None:
        steps.append(active.entry.partition)
        ends_s = clock.now_s() + 2 * SIGN_S
        clock.wait_until(lambda: clock.now_s() >= ends_s, 10 * SIGN_S, "a slow request")

    with patch.object(repairs, "_step", slow):
        repairs._round([_ActiveRepair(entry, 0.0, 0.0) for entry in SHAPES[0].entries(cluster)])
    assert len(steps) == 1


def test_a_repair_that_was_taken_over_ends() -> None:
    cluster = SHAPES[0].cluster(1)
    check = Mock(side_effect=TakenOverError("taken over"))
    journal = empty_journal()
    repairs = repairing(cluster, journal, SimulatedTime(cluster), check_owner=check)
    with pytest.raises(TakenOverError):
        repairs.run(SHAPES[0].entries(cluster))
    assert (cluster.held(), cluster.limited, journal.entries()) == (frozenset(), False, {})


def repair_by_channel(
    cluster: DivergedCluster, guarded: FakeCluster, kill: KillAt, entries: list[PartitionRepair]
) -> None:
    """Repair with progress, holds and owner in the channel, and go on after each kill, as another process would."""
    clock = SimulatedTime(cluster)
    cluster.point, cluster.is_paused = kill, guarded.is_paused
    guarded.before = guarded.after = lambda _name: kill()
    for number in range(MOST_KILLS):
        journal = RepairJournal(FakeChannel(guarded, clock, f"repair {number}"))
        holds = ChannelHolds(journal, guarded)
        repairs = repairing(cluster, journal, clock, holds, at_once=2, check_owner=journal.check)
        try:
            journal.claim()
            assert all(replicated.why is None for replicated in repairs.run(entries))
        except KilledError:
            continue
        return
    pytest.fail("it was killed too often")


def test_a_repair_by_the_channel_that_is_killed_at_any_request_is_resumed_with_settings_as_found() -> None:
    shape, settings = SHAPES[0], {"t0": {DIRTY_RATIO: "0.3"}, "t1": {}}

    def repaired(kill: KillAt) -> list[str]:
        cluster = shape.cluster(2, partitions=2, faults=False)
        guarded, before = FakeCluster({topic: dict(own) for topic, own in settings.items()}), orders(cluster)
        repair_by_channel(cluster, guarded, kill, shape.entries(cluster))
        assert guarded.explicit == settings
        return failures(cluster, before)

    counted = KillAt()
    assert repaired(counted) == []
    assert counted.passed > 100
    for at in range(1, counted.passed + 1, 3):
        assert repaired(KillAt(at)) == [], at


@pytest.mark.parametrize("rule", list(Rule))
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without any one of the rules, some repairs of the simulation end wrong."""
    without = {kept: check for kept, check in RULES.items() if kept != rule}
    for seed in range(3 * SEEDS):
        shape = SHAPES[seed % 2]
        cluster = shape.cluster(seed)
        before = orders(cluster)
        repair(cluster, shape.entries(cluster), rules=without)
        if failures(cluster, before):
            return
    pytest.fail(f"no repair without the rule ended wrong: {rule}")
