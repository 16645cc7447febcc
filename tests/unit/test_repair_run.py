"""From a plan to what can be done on a cluster; settings of topics and brokers; transactions that hang."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.guarded import BoundedClock, FakeChannel, FakeCluster
from fakes.progress import FakeProgress
from fakes.repaired import RepairedBrokers
from test_repair_plan import finding, verdict

from harness.errors import HarnessError, UsageError
from harness.kafka_api import wire
from harness.kafka_api.wire import Address
from harness.protect.repair import hanging, run
from harness.protect.repair.channel import ChannelJournal, Notes
from harness.protect.repair.hanging import abort_all
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.own_settings import LiveSettings
from harness.protect.repair.plan import Abort, plan_of
from harness.protect.repair.run import RepairRequest, look
from harness.protect.repair.state import Entry
from harness.protect.repair.throttle import BROKER, TOPIC
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
    (refused,) = looked.prepared.refused
    assert refused.why == "another reassignment of it is under way"
    assert guarded.log == []
    entry = Entry(("t", 0), "id", (1, 2, 3), 1, (1, 3), (2,), audit="audit-0")
    ChannelJournal(Notes(channel, BoundedClock(now=1.0), "repair 1")).store(entry)
    looked = look(REQUEST, cluster(), channel)
    assert (looked.begun, looked.prepared.refused) == ({("t", 0): entry}, ())


def test_nothing_is_made_on_a_cluster_that_was_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched(*_: Any) -> Any:
        pytest.fail("the channel of another cluster was opened")

    monkeypatch.setattr(run, "LiveRepairCluster", lambda _: cluster())
    monkeypatch.setattr(run, "KafkaChannel", untouched)
    other = replace(REQUEST, plan=replace(PLAN, cluster_id="c2"))
    with pytest.raises(UsageError, match="the audit was of cluster c2, and the brokers are of cluster c1"):
        run.apply(other, FakeProgress(), SparkOptions())


def test_own_settings_are_those_that_a_topic_or_a_broker_has_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, Any]] = []
    code = 0

    def call(address: Address, request: Any, **_: float) -> Any:
        asked.append((address.port, request))
        (resource,) = request.resources
        if type(request).__name__ == "DescribeConfigsRequest":
            source = {2: 1, 4: 2}[resource.resource_type]
            configs = [
                SimpleNamespace(name="a", value="1", config_source=source),
                SimpleNamespace(name="b", value="2", config_source=5),
            ]
            return SimpleNamespace(results=[SimpleNamespace(error_code=code, error_message="no", configs=configs)])
        return SimpleNamespace(responses=[SimpleNamespace(error_code=code, error_message="no")])

    monkeypatch.setattr(wire, "call", call)
    live = cluster()
    live.connect()
    settings = LiveSettings(live)
    assert settings.own(TOPIC, "t", ["a", "b"]) == {"a": "1", "b": None}
    assert settings.own(BROKER, "3", ["a", "b"]) == {"a": "1", "b": None}
    settings.alter(BROKER, "2", {"a": "5", "b": None})
    assert [port for port, _ in asked] == [1, 3, 2], "a broker's settings are asked of the broker itself"
    configs = asked[-1][1].resources[0].configs
    assert [(one.name, one.config_operation, one.value) for one in configs] == [("a", 0, "5"), ("b", 1, None)]
    code = 29
    with pytest.raises(HarnessError, match="settings of topic t: no"):
        settings.alter(TOPIC, "t", {"a": "1"})


def test_a_transaction_that_hangs_is_aborted_on_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Address("b", 2)
    transaction = SimpleNamespace(producer_id=7, producer_epoch=1)
    suspicion = SimpleNamespace(
        anomaly="hanging-transaction", topic="t", partition=0, offset=3, transaction=transaction
    )
    described = SimpleNamespace(brokers={2: leader}, partitions={("t", 0): SimpleNamespace(leader=2)})
    sent: list[Address] = []

    def call(address: Address, request: Any, **_: float) -> Any:
        sent.append(address)
        (marker,) = request.markers
        assert (marker.producer_id, marker.transaction_result) == (7, False)
        partition = SimpleNamespace(error_code=0)
        return SimpleNamespace(markers=[SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])])

    monkeypatch.setattr(wire, "call", call)
    monkeypatch.setattr(hanging, "describe", lambda *_: described)
    monkeypatch.setattr(hanging, "prefilter", lambda _: SimpleNamespace(suspicions=[suspicion]))
    clock = BoundedClock(now=1.0)
    still, ended = Abort(("t", 0), 7, 3), Abort(("t", 0), 8, 4)
    assert [one.why for one in abort_all([still, ended], BOOTSTRAP, clock)] == [None, None]
    assert sent == [leader], "a transaction that has ended is left alone"
    described.brokers.clear()
    (left,) = abort_all([still], BOOTSTRAP, clock)
    assert left.why == "t-0 has no leader"
    assert abort_all([], BOOTSTRAP, clock) == []
