"""Requests of a repair to brokers and their answers, the plan against the cluster as it is, and what hangs."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock
from uuid import UUID

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.guarded import BoundedClock, FakeChannel, FakeCluster
from fakes.progress import FakeProgress
from fakes.repaired import TOPIC_ID, RepairedBrokers
from test_repair_plan import CAUTION, finding, plan_of, verdict

from harness.audit.explain.advice import Caution
from harness.audit.live.prefilter import prefilter
from harness.broker_files.internal_topics.message_format import uuid_text
from harness.errors import EXIT_FAILED, HarnessError, UsageError
from harness.kafka_api import NO_SUCH_TOPIC, NO_TOPIC_ACCESS
from harness.kafka_api.address import Address
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.topics import Reassignment
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.protect.guard.cluster import PAUSE
from harness.protect.repair import run
from harness.protect.repair.channel import BROKER, TOPIC, RepairJournal
from harness.protect.repair.live import MIN_INSYNC, BrokerAnswer, ClusterAnswers, LiveRepairCluster
from harness.protect.repair.plan import Abort, PreparedRepair, RepairPlan, Task, check_cluster, check_saved, prepare
from harness.protect.repair.run import RepairRequest, abort_all, look
from harness.protect.repair.steps import RECREATED, ObservedPartition, PartitionRepair, Stop, next_step
from harness.spark.options import SparkOptions

NOT_ALLOWED = kafka.errors.ClusterAuthorizationFailedError.errno
ENTRY = PartitionRepair(TP, uuid_text(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,))


def cluster_of(brokers: RepairedBrokers) -> LiveRepairCluster:
    return LiveRepairCluster([Address("b", 9), Address("b", 1)], dial=brokers)


def test_an_observation_has_metadata_settings_folders_and_reassignments() -> None:
    cluster = cluster_of(RepairedBrokers(silent={9}))
    everyone = frozenset({1, 2, 3})
    assert cluster.observe([ENTRY]) == {TP: ObservedPartition(
        uuid_text(TOPIC_ID), 1, 7, (1, 2, 3), frozenset({1, 3}), 2, everyone, is_held=True, adding=frozenset({2}),
        folders_bytes={1: 90, 3: 80}, answered=everyone,
    )}  # fmt: skip
    assert cluster.connect() == "c1"
    assert cluster.answers([TP]).brokers[2].usable_bytes == 300


@pytest.mark.parametrize(("brokers", "condition"), [
    (RepairedBrokers(epochs={3: 8}), "the brokers' metadata to be the same, and to have t-0"),
    (RepairedBrokers(silent={3}), "an answer of broker 3"),
    (RepairedBrokers(folder_error=NOT_ALLOWED), "the folders of broker 2: ClusterAuthorizationFailedError"),
])  # fmt: skip
def test_nothing_is_concluded_where_brokers_differ_or_do_not_answer(brokers: RepairedBrokers, condition: str) -> None:
    assert cluster_of(brokers).observe([ENTRY])[TP] == condition


def test_a_cluster_that_does_not_answer_or_refuses_is_an_error() -> None:
    with pytest.raises(HarnessError, match="no broker answers"):
        cluster_of(RepairedBrokers(silent={1, 9})).observe([ENTRY])
    with pytest.raises(HarnessError, match="reassignments are unknown: ClusterAuthorizationFailedError"):
        cluster_of(RepairedBrokers(listing_error=NOT_ALLOWED)).observe([ENTRY])


def test_explicit_settings_are_those_that_a_topic_or_a_broker_has_itself() -> None:
    brokers = RepairedBrokers()
    cluster = cluster_of(brokers)
    cluster.connect()
    brokers.asked.clear()
    assert cluster.explicit(TOPIC, "t", ["b", "a"]) == {"a": "1", "b": None}
    assert cluster.explicit(BROKER, "3", ["b", "a"]) == {"a": "1", "b": None}
    cluster.alter(BROKER, "2", {"a": "5", "b": None})
    assert [port for port, _ in brokers.asked] == [9, 3, 2], "a broker's settings are asked of the broker itself"
    changes = [(config.name, config.value) for config in brokers.asked[-1][1].resources[0].configs]
    assert changes == [("a", "5"), ("b", None)]
    brokers.setting_error = 3
    assert cluster.explicit(TOPIC, "t", ["a"]) == {}, "a topic that was deleted has no settings"
    brokers.setting_error = 29
    with pytest.raises(HarnessError, match="settings of topic t: no"):
        cluster.alter(TOPIC, "t", {"a": "1"})


BOOTSTRAP = [Address("b", 1)]
PLAN = plan_of(verdict(finding(topic="t", right=[1, 3])))
REQUEST = RepairRequest(BOOTSTRAP, PLAN, "audit-1")


def test_a_look_changes_nothing_and_names_what_was_begun() -> None:
    guarded = FakeCluster({})
    channel = FakeChannel(guarded)
    (refused,) = look(REQUEST, cluster_of(RepairedBrokers()), channel).refused
    assert refused.why == "another reassignment of it is under way"
    assert guarded.log == []
    entry = replace(ENTRY, audit="audit-0")
    RepairJournal(channel).store(entry)
    looked = look(REQUEST, cluster_of(RepairedBrokers()), channel)
    assert (looked.resumed, looked.refused) == ((entry,), ())


def test_nothing_is_made_on_a_cluster_that_was_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LiveRepairCluster", lambda _: cluster_of(RepairedBrokers()))
    monkeypatch.setattr(run, "KafkaChannel", lambda *_: pytest.fail("the channel of another cluster was opened"))
    other = replace(REQUEST, plan=replace(PLAN, cluster_id="c2"))
    with pytest.raises(UsageError, match="the audit was of cluster c2, and the brokers are of cluster c1"):
        run.apply(other, FakeProgress(), SparkOptions())
    assert check_cluster(plan_of_tasks(), "c1") == []
    assert "does not have the id" in check_cluster(plan_of_tasks(cluster_id=None), "c1")[0]
    with pytest.raises(UsageError, match="this is a Redpanda cluster"):
        check_cluster(plan_of_tasks(cluster_id=None), "redpanda.1a")


def test_a_repair_that_an_error_ends_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Mock(return_value=Mock(run=Mock(side_effect=ConnectionError("no broker answers"))))
    for name in ("LiveRepairCluster", "check_cluster", "find_java", "KafkaChannel", "RepairJournal", "look"):
        monkeypatch.setattr(run, name, MagicMock())
    for name, fake in {"abort_all": Mock(), "LiveCluster": MagicMock(), "Repairs": failed}.items():
        monkeypatch.setattr(run, name, fake)
    with pytest.raises(HarnessError, match=r"not complete \(run the same command again.*: no broker answers"):
        run.apply(REQUEST, FakeProgress(), SparkOptions())


def test_a_transaction_that_hangs_is_aborted_on_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Held(20, 3, open=(OpenTransaction(7, 1, 3, coordinator_epoch=4),))
    complete = TransactionDescription(1, "tx", "CompleteCommit", 7, 1, 0, frozenset())
    brokers = {number: FakeBroker({TP: [replica]}, words=[complete] if number == 2 else []) for number in (2, 1)}
    cluster = audited(brokers)
    monkeypatch.setattr(run, "describe", lambda *_, **__: cluster)
    clock = BoundedClock(now=1.0)
    flink = Abort(TP, 7, 3, Caution("restart the job", may_be_committed=True))
    assert [aborted.why for aborted in abort_all([flink], BOOTSTRAP, clock)] == ["restart the job"]
    assert brokers[2].named("WriteTxnMarkers") == []
    still, ended = Abort(TP, 7, 3, CAUTION), Abort(TP, 8, 4, CAUTION)
    assert [aborted.why for aborted in abort_all([still, ended], BOOTSTRAP, clock)] == [None, None]
    (request,) = brokers[2].named("WriteTxnMarkers")
    (marker,) = request.markers
    assert (marker.producer_id, marker.coordinator_epoch, marker.transaction_result) == (7, 4, False)
    assert brokers[1].named("WriteTxnMarkers") == [], "a transaction that has ended is left alone"
    monkeypatch.setattr(run, "describe", lambda *_, **__: audited(brokers, absent=(3,)))
    open_only = ["it is open, and brokers do not show now that it hangs"]
    assert [aborted.why for aborted in abort_all([still], BOOTSTRAP, clock)] == open_only
    leaderless = replace(cluster.state, brokers={1: Address("127.0.0.1", 9001)})
    prefiltered = prefilter(cluster)
    monkeypatch.setattr(run, "prefilter", lambda _: prefiltered)
    monkeypatch.setattr(run, "describe", lambda *_, **__: replace(cluster, state=leaderless))
    (aborted,) = abort_all([still], BOOTSTRAP, clock)
    assert aborted.why == "t-0 has no leader"
    for other in ({"anomaly": "stuck-lso"}, {"offset": 4}, {"partition": 1}, {"transaction": None}):
        suspicions = tuple(replace(suspicion, **other) for suspicion in prefiltered.suspicions)
        monkeypatch.setattr(run, "prefilter", lambda _, given=suspicions: replace(prefiltered, suspicions=given))
        assert [aborted.why for aborted in abort_all([still], BOOTSTRAP, clock)] == open_only
    assert abort_all([], BOOTSTRAP, clock) == []


STATE = PartitionState(1, (1, 2, 3), (1, 2, 3), leader_epoch=7)
UNKNOWN = ClusterState("c1", {}, {})
HIDDEN = ClusterState("c1", {}, {"t": TopicState("t", {}, error=NO_TOPIC_ACCESS)})
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


def plan_of_tasks(*tasks: Task, cluster_id: str | None = "c1") -> RepairPlan:
    return RepairPlan(tasks, (), (), (), cluster_id, datetime(2026, 1, 1, tzinfo=UTC))


AUDITED_ENTRY = PartitionRepair(TP, uuid_text(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,), audit="audit-1")


def prepared(cluster_answers: ClusterAnswers, task: Task = TASK, **limits: Any) -> PreparedRepair:
    return prepare(plan_of_tasks(task), cluster_answers, "audit-1", **{"begun": {}, **limits})


def test_what_can_be_done_is_prepared_and_what_another_assignment_leaves_of_it() -> None:
    assert prepared(answers()) == PreparedRepair((AUDITED_ENTRY,))
    moved = answers(replace(STATE, replicas=(3, 2), isr=(2, 3)), min_insync=1)
    (entry,) = prepared(moved, task=Task(TP, (1, 2), (3,), ())).entries
    assert (entry.wrong, entry.right, entry.spare) == ((2,), (3,), 1)


@pytest.mark.parametrize(("audited", "is_refused"), [(UUID(int=7), True), (TOPIC_ID, False)])
def test_a_topic_that_was_created_again_since_the_audit_is_refused(audited: UUID, is_refused: bool) -> None:  # noqa: FBT001
    plan = replace(plan_of_tasks(TASK), topic_ids={"t": uuid_text(audited)})
    refused = prepare(plan, answers(), "audit-1", begun={}).refused
    assert [undecided.why for undecided in refused] == [RECREATED] * is_refused


@pytest.mark.parametrize(("cluster_answers", "why"), [
    (answers(replace(STATE, replicas=(1, 3))), "broker 2 has no replica any more: audit again"),
    (answers(replace(STATE, replicas=(2, 4))), "brokers 1, 3 has no replica any more"),
    (answers(brokers=(1, 3, 4)), "broker 2 is down"),
    (replace(answers(), ongoing={TP: Reassignment(frozenset({4}))}), "another reassignment of it is under way"),
    (answers(brokers=(1, 2, 3), min_insync=3), "no other broker can have a replica meanwhile"),
    (replace(answers(), brokers={1: answer(), 2: answer(replace(STATE, leader=3))}), "metadata to be the same"),
    (ClusterAnswers(frozenset(), {1: replace(answer(), state=UNKNOWN)}), "and to have t-0"),
    (ClusterAnswers(frozenset(), {1: replace(answer(), state=HIDDEN)}), "and to have t-0 (TopicAuthorizationFailed"),
])  # fmt: skip
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
    begun = {TP: replace(AUDITED_ENTRY, audit=audit, is_done=is_done)}
    result = prepared(answers(), begun=begun)
    assert len(result.entries) == begins
    assert bool(result.notes) == (is_done and not begins), "a note names a repair that has ended before"
    more = {TP: replace(AUDITED_ENTRY, right=(1,), wrong=(3,), audit="audit-0")}
    (note,) = prepared(answers(), begun=more).notes
    assert note.endswith("by audit audit-0 is resumed first: afterwards, run this command again for broker 2")


def test_a_repair_under_way_that_copies_from_a_wrong_replica_is_replaced_or_stops_the_command() -> None:
    begun = {TP: replace(AUDITED_ENTRY, right=(2,), wrong=(1, 3), leader=3, copies=2, audit="mistaken")}
    result = prepared(answers(), begun=begun)
    assert (result.entries, result.resumed) == ((replace(AUDITED_ENTRY, leader=3),), ())
    removed = answers(replace(STATE, replicas=(1, 2), isr=(1, 2)))
    why = "which is wrong by this plan; it cannot be replaced: first assign its replicas to brokers 1, 2, 3 again"
    with pytest.raises(UsageError, match=why):
        prepared(removed, begun=begun)


OLD, NEW = "audit-2026-11-24T10-20-30Z-ab12", "audit-2026-11-25T10-20-30Z-ab12"


@pytest.mark.parametrize(("stored", "right", "audit", "why"), [
    ({"audit": NEW, "is_done": True}, 1, OLD, "it is repaired by audit audit-2026-11-25"),
    ({"audit": NEW, "right": (2,), "wrong": (1, 3)}, 1, OLD, "cannot be replaced: it is repaired by audit audit-2026"),
    ({"audit": OLD, "right": (2,), "wrong": (1, 3), "rebuilt": (1,)}, 3, OLD, "brokers 1, 3 may already have a copy"),
    ({"audit": OLD, "right": (2,), "wrong": (3, 1)}, 1, OLD, None),
    ({"audit": OLD, "right": (2,), "wrong": (1, 3), "rebuilt": (1,)}, 1, NEW, None),
])  # fmt: skip
def test_evidence_that_is_older_than_a_repair_of_the_partition_does_not_count(
    stored: dict[str, Any], right: int, audit: str, why: str | None
) -> None:
    plan = plan_of_tasks(replace(TASK, right=(right,)))
    try:
        result = prepare(plan, answers(), audit, begun={TP: replace(AUDITED_ENTRY, **stored)})
        texts = [refused.why for refused in result.refused]
    except UsageError as error:
        texts = [str(error)]
    assert [why is not None and why in text for text in texts] == [True] * (why is not None)


def test_a_topic_that_was_deleted_ends_its_repair() -> None:
    deleted = ClusterState("c1", {}, {"t": TopicState("t", {}, error=NO_SUCH_TOPIC)})
    observed = ClusterAnswers(frozenset({1}), {1: replace(answer(), state=deleted)}).partition(AUDITED_ENTRY)
    assert not isinstance(observed, str)
    assert next_step(AUDITED_ENTRY, observed) == Stop(RECREATED, is_final=True)
    unanswered = ClusterAnswers(frozenset({1, 2}), {1: replace(answer(), state=deleted)})
    assert isinstance(unanswered.partition(AUDITED_ENTRY), str)


@pytest.mark.parametrize("kind", [UsageError, HarnessError, OSError])
def test_the_audit_at_the_end_leaves_deleted_topics_out_and_its_failure_is_no_usage(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    failure = Mock(side_effect=kind("no Java"))
    monkeypatch.setattr(run, "audit_live", failure)
    monkeypatch.setattr(run, "describe", lambda *_, may_miss: audited({1: FakeBroker({})}) if may_miss else None)
    with pytest.raises(HarnessError, match="the repair has ended, and the audit after it failed: no Java") as raised:
        run.audit_again(BOOTSTRAP, ["deleted", "t"], FakeProgress(), SparkOptions())
    assert (raised.value.exit_code, failure.call_args.args[0].topics) == (EXIT_FAILED, ["t"])


def test_an_observation_is_what_every_broker_says() -> None:
    paused = replace(answers(paused=True), ongoing={TP: Reassignment(frozenset({2}))})
    observed = paused.partition(AUDITED_ENTRY)
    assert not isinstance(observed, str)
    assert (observed.is_held, observed.min_insync, observed.adding) == (True, 2, frozenset({2}))
    assert [observed.is_without_folder(broker) for broker in (4, 2)] == [True, False]
    half = replace(paused, brokers={**paused.brokers, 4: answer(folder=None)}).partition(AUDITED_ENTRY)
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
