"""From a plan to what can be done on a cluster; settings of topics and brokers; transactions that hang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.guarded import BoundedClock, FakeChannel, FakeCluster
from fakes.progress import FakeProgress
from fakes.repaired import TOPIC_ID, RepairedBrokers
from test_repair_plan import finding, plan_of, verdict

from harness.audit.live.prefilter import prefilter
from harness.errors import UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.protect.repair import run
from harness.protect.repair.channel import RepairJournal
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.plan import Abort
from harness.protect.repair.run import RepairRequest, abort_all, look
from harness.protect.repair.steps import PartitionRepair
from harness.spark.options import SparkOptions

BOOTSTRAP = [Address("b", 1)]
PLAN = plan_of(verdict(finding(topic="t", right=[1, 3])))
REQUEST = RepairRequest(BOOTSTRAP, PLAN, "audit-1")


def cluster() -> LiveRepairCluster:
    return LiveRepairCluster(BOOTSTRAP, dial=RepairedBrokers())


def test_a_look_changes_nothing_and_names_what_was_begun() -> None:
    guarded = FakeCluster({})
    channel = FakeChannel(guarded)
    looked = look(REQUEST, cluster(), channel)
    # Its replica is being added by somebody else.
    (refused,) = looked.refused
    assert refused.why == "another reassignment of it is under way"
    assert guarded.log == []
    entry = PartitionRepair(("t", 0), str(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,), audit="audit-0")
    RepairJournal(channel, BoundedClock(now=1.0), "repair 1").store(entry)
    looked = look(REQUEST, cluster(), channel)
    assert (looked.resumed, looked.refused) == ((entry,), ())


def test_nothing_is_made_on_a_cluster_that_was_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched(*_: Any) -> Any:
        pytest.fail("the channel of another cluster was opened")

    monkeypatch.setattr(run, "LiveRepairCluster", lambda _: cluster())
    monkeypatch.setattr(run, "KafkaChannel", untouched)
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
    still, ended = Abort(TP, 7, 3), Abort(TP, 8, 4)
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
