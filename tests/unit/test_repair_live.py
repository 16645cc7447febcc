"""Requests of a repair to brokers and their answers; from a plan to what can be done; transactions that hang."""

from dataclasses import replace

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.guarded import BoundedClock, FakeChannel, FakeCluster
from fakes.progress import FakeProgress
from fakes.repaired import TOPIC_ID, RepairedBrokers
from test_repair_plan import CAUTION, finding, plan_of, verdict

from harness.audit.explain.advice import Caution
from harness.audit.live.prefilter import prefilter
from harness.errors import HarnessError, UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.protect.repair import run
from harness.protect.repair.channel import BROKER, TOPIC, RepairJournal
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.plan import Abort
from harness.protect.repair.run import RepairRequest, abort_all, look
from harness.protect.repair.steps import ObservedPartition, PartitionRepair
from harness.spark.options import SparkOptions

NOT_ALLOWED = kafka.errors.ClusterAuthorizationFailedError.errno
ENTRY = PartitionRepair(TP, str(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,))


def cluster_of(brokers: RepairedBrokers) -> LiveRepairCluster:
    return LiveRepairCluster([Address("b", 9), Address("b", 1)], dial=brokers)


def test_an_observation_has_metadata_settings_folders_and_reassignments() -> None:
    cluster = cluster_of(RepairedBrokers(silent={9}))
    everyone = frozenset({1, 2, 3})
    assert cluster.observe([ENTRY]) == {TP: ObservedPartition(
        str(TOPIC_ID), 1, 7, (1, 2, 3), frozenset({1, 3}), 2, everyone, is_held=True, adding=frozenset({2}),
        folders_bytes={1: 90, 3: 80}, answered=everyone,
    )}  # fmt: skip
    assert cluster.connect() == "c1"
    assert cluster.answers([TP]).brokers[2].usable_bytes == 300


@pytest.mark.parametrize(
    ("brokers", "condition"),
    [
        (RepairedBrokers(epochs={3: 8}), "the brokers' metadata to be the same"),
        (RepairedBrokers(silent={3}), "an answer of broker 3"),
        (RepairedBrokers(folder_error=NOT_ALLOWED), "the folders of broker 2: ClusterAuthorizationFailedError"),
    ],
)
def test_nothing_is_concluded_where_brokers_differ_or_do_not_answer(brokers: RepairedBrokers, condition: str) -> None:
    assert cluster_of(brokers).observe([ENTRY])[TP] == condition


def test_a_cluster_that_does_not_answer_or_refuses_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="no broker answers"):
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
    brokers.setting_error = 29
    with pytest.raises(HarnessError, match="settings of topic t: no"):
        cluster.alter(TOPIC, "t", {"a": "1"})


BOOTSTRAP = [Address("b", 1)]
PLAN = plan_of(verdict(finding(topic="t", right=[1, 3])))
REQUEST = RepairRequest(BOOTSTRAP, PLAN, "audit-1")


def cluster() -> LiveRepairCluster:
    return LiveRepairCluster(BOOTSTRAP, dial=RepairedBrokers())


def test_a_look_changes_nothing_and_names_what_was_begun() -> None:
    guarded = FakeCluster({})
    channel = FakeChannel(guarded)
    (refused,) = look(REQUEST, cluster(), channel).refused
    assert refused.why == "another reassignment of it is under way"
    assert guarded.log == []
    entry = replace(ENTRY, audit="audit-0")
    RepairJournal(channel).store(entry)
    looked = look(REQUEST, cluster(), channel)
    assert (looked.resumed, looked.refused) == ((entry,), ())


def test_nothing_is_made_on_a_cluster_that_was_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LiveRepairCluster", lambda _: cluster())
    monkeypatch.setattr(run, "KafkaChannel", lambda *_: pytest.fail("the channel of another cluster was opened"))
    other = replace(REQUEST, plan=replace(PLAN, cluster_id="c2"))
    with pytest.raises(UsageError, match="the audit was of cluster c2, and the brokers are of cluster c1"):
        run.apply(other, FakeProgress(), SparkOptions())


def test_a_transaction_that_hangs_is_aborted_on_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Held(20, 3, open=(OpenTransaction(7, 1, 3),))
    complete = TransactionDescription(1, "tx", "CompleteCommit", 7, 1, 0, frozenset())
    brokers = {number: FakeBroker({TP: [replica]}, words=[complete] if number == 2 else []) for number in (2, 1)}
    cluster = audited(brokers)
    monkeypatch.setattr(run, "describe", lambda *_: cluster)
    clock = BoundedClock(now=1.0)
    flink = Abort(TP, 7, 3, Caution("restart the job", may_be_committed=True))
    assert [aborted.why for aborted in abort_all([flink], BOOTSTRAP, clock)] == ["restart the job"]
    assert brokers[2].named("WriteTxnMarkers") == []
    still, ended = Abort(TP, 7, 3, CAUTION), Abort(TP, 8, 4, CAUTION)
    assert [aborted.why for aborted in abort_all([still, ended], BOOTSTRAP, clock)] == [None, None]
    (request,) = brokers[2].named("WriteTxnMarkers")
    (marker,) = request.markers
    assert (marker.producer_id, marker.transaction_result) == (7, False)
    assert brokers[1].named("WriteTxnMarkers") == [], "a transaction that has ended is left alone"
    leaderless = replace(cluster.state, brokers={1: Address("127.0.0.1", 9001)})
    prefiltered = prefilter(cluster)
    monkeypatch.setattr(run, "prefilter", lambda _: prefiltered)
    monkeypatch.setattr(run, "describe", lambda *_: replace(cluster, state=leaderless))
    (aborted,) = abort_all([still], BOOTSTRAP, clock)
    assert aborted.why == "t-0 has no leader"
    assert abort_all([], BOOTSTRAP, clock) == []
