"""The plan against the cluster as it is: answers of brokers 1 to 4, of which the first three have a replica."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from harness.errors import UsageError
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.topics import Reassignment
from harness.protect.guard.cluster import PAUSE
from harness.protect.repair.live import MIN_INSYNC, BrokerAnswer, ClusterAnswers
from harness.protect.repair.plan import PreparedRepair, RepairPlan, Task, check_cluster, check_saved, prepare
from harness.protect.repair.steps import PartitionRepair

TP = ("t", 0)
TOPIC_ID = UUID(int=1)
STATE = PartitionState(1, (1, 2, 3), (1, 2, 3), leader_epoch=7)
UNKNOWN = ClusterState("c1", {}, {})
SETTINGS = {"min.cleanable.dirty.ratio": "0.5", "max.compaction.lag.ms": "1"}
TASK = Task(TP, (2,), (1, 3), ("why",))
FREE = 10_000


def answer(
    state: PartitionState = STATE, folder: int | None = 100, *, min_insync: int = 2, paused: bool = False
) -> BrokerAnswer:
    settings = {**SETTINGS, MIN_INSYNC: str(min_insync), **(PAUSE if paused else {})}
    cluster = ClusterState("c1", {}, {"t": TopicState("t", {0: state}, TOPIC_ID)})
    return BrokerAnswer(cluster, {"t": settings}, {} if folder is None else {TP: folder}, FREE)


def answers(
    state: PartitionState = STATE, brokers: tuple[int, ...] = (1, 2, 3, 4), *, min_insync: int = 2, paused: bool = False
) -> ClusterAnswers:
    by_broker = {
        b: answer(state, 100 if b in state.replicas else None, min_insync=min_insync, paused=paused) for b in brokers
    }
    return ClusterAnswers(frozenset(brokers), by_broker)


def plan_of(*tasks: Task, cluster_id: str | None = "c1") -> RepairPlan:
    return RepairPlan(tasks, (), (), (), cluster_id, datetime(2026, 1, 1, tzinfo=UTC))


ENTRY = PartitionRepair(TP, str(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,), audit="audit-1")


def prepared(cluster_answers: ClusterAnswers, task: Task = TASK, **limits: Any) -> PreparedRepair:
    return prepare(plan_of(task), cluster_answers, "audit-1", **{"begun": {}, **limits})


def test_what_can_be_done_is_prepared_with_what_is_there_now() -> None:
    assert prepared(answers()) == PreparedRepair((ENTRY,))


def test_what_another_assignment_leaves_of_a_task_is_done() -> None:
    moved = answers(replace(STATE, replicas=(3, 2), isr=(2, 3)), min_insync=1)
    (entry,) = prepared(moved, task=Task(TP, (1, 2), (3,), ())).entries
    assert (entry.wrong, entry.right, entry.spare) == ((2,), (3,), 1)


@pytest.mark.parametrize(
    ("cluster_answers", "why"),
    [
        (answers(replace(STATE, replicas=(1, 3))), "broker 2 has no replica any more: audit again"),
        (answers(replace(STATE, replicas=(2, 4))), "brokers 1, 3 has no replica any more"),
        (answers(brokers=(1, 3, 4)), "broker 2 is down"),
        (replace(answers(), ongoing={TP: Reassignment(frozenset({4}))}), "another reassignment of it is under way"),
        (answers(brokers=(1, 2, 3), min_insync=3), "no other broker can have a replica meanwhile"),
        (replace(answers(), brokers={1: answer(), 2: answer(replace(STATE, leader=3))}), "metadata to be the same"),
        (ClusterAnswers(frozenset(), {1: replace(answer(), state=UNKNOWN)}), "t-0 to be in the metadata"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(cluster_answers: ClusterAnswers, why: str) -> None:
    result = prepared(cluster_answers)
    assert result.entries == ()
    (refused,) = result.refused
    assert why in refused.why


def test_a_spare_broker_has_no_replica_and_no_folder() -> None:
    strict = answers(min_insync=3)
    assert [one.spare for one in prepared(strict).entries] == [4]
    assert [one.spare for one in prepared(strict, spare=4).entries] == [4]
    assert prepared(strict, spare=3).entries == ()
    with_folder = replace(strict, brokers={**strict.brokers, 4: answer(folder=50, min_insync=3)})
    assert prepared(with_folder).entries == ()


def test_disks_have_to_hold_the_copies() -> None:
    grown = replace(answers(), brokers={**answers().brokers, 1: answer(folder=5_000)})
    assert prepared(grown).refused == ()
    small, unknown = (replace(answer(), usable_bytes=usable) for usable in (5_400, None))
    (refused,) = prepared(replace(grown, brokers={**grown.brokers, 2: small})).refused
    assert refused.why == "broker 2 has 5,400 bytes free, and the copies need 5,500"
    silent = replace(answers(), brokers={**answers().brokers, 2: unknown})
    assert prepared(silent).notes == ("the free disk space of broker 2 is unknown",)


@pytest.mark.parametrize(("audit", "is_done", "begins"), [
    ("audit-1", False, False), ("audit-1", True, False), ("audit-0", False, False), ("audit-0", True, True),
])  # fmt: skip
def test_repairs_that_began_are_gone_on_with_and_those_of_this_audit_are_not_done_twice(
    audit: str, *, is_done: bool, begins: bool
) -> None:
    begun = {TP: replace(ENTRY, audit=audit, is_done=is_done)}
    assert len(prepared(answers(), begun=begun).entries) == begins


def test_the_audit_has_to_be_of_this_cluster() -> None:
    assert check_cluster(plan_of(), "c1") == []
    assert "does not have the id" in check_cluster(plan_of(cluster_id=None), "c1")[0]
    with pytest.raises(UsageError, match="the audit was of cluster c1, and the brokers are of cluster c2"):
        check_cluster(plan_of(), "c2")


def test_an_observation_is_what_every_broker_says() -> None:
    paused = replace(answers(paused=True), ongoing={TP: Reassignment(frozenset({2}))})
    observed = paused.partition(ENTRY)
    assert not isinstance(observed, str)
    assert (observed.is_held, observed.min_insync, observed.adding) == (True, 2, frozenset({2}))
    assert [observed.is_without_folder(broker) for broker in (4, 2)] == [True, False]
    half = replace(paused, brokers={**paused.brokers, 4: answer(folder=None)}).partition(ENTRY)
    assert not getattr(half, "is_held", True)


def test_folders_have_to_be_saved_before_a_person_decides(tmp_path: Path) -> None:
    replicas = {TP: (1, 2)}
    check_saved(None, {})
    with pytest.raises(UsageError, match="give --saved-folders DIR"):
        check_saved(None, replicas)
    for broker in (1, 2):
        (tmp_path / str(broker) / "t-0").mkdir(parents=True)
        with pytest.raises(UsageError, match=r"t-0 has no segment"):
            check_saved(tmp_path, replicas)
        (tmp_path / str(broker) / "t-0" / "00000000000000000000.log").touch()
    check_saved(tmp_path, replicas)
