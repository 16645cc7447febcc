"""Observations of the guard, once a minute: sums over replicas, unreadable topics, failed observations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes.clock import TickingClock

from harness.audit.live.broker_reports import ReplicaStatus, ReplicaStatuses, UnreadableTopicError
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.prefilter import Prefiltered
from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.cluster_client import ClusterClient
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.transactions import OpenTransaction
from harness.protect.guard.journal import Pause, PausePhase, PauseState
from harness.protect.guard.observe import GuardObserver, growth, lso_spread, open_transactions
from harness.protect.guard.status import GuardStatus, Observation

OPEN = OpenTransaction(7, 0, 5)
STATUSES = ReplicaStatuses(
    {
        (1, ("t", 0)): ReplicaStatus(0, 20, 20, 20, ()),
        (2, ("t", 0)): ReplicaStatus(0, 20, 5, 20, (OPEN,)),
        (3, ("t", 0)): ReplicaStatus(0, 20, 5, 20, (OPEN,)),
        (1, ("u", 0)): ReplicaStatus(0, 9, 9, 9, None),
    },
    {},
    {},
)
COVERED = GuardStatus(covered=frozenset({"t", "u"}))
PAUSED = replace(COVERED, state=PauseState({"t": Pause("t", PausePhase.PAUSED, "c", {}, 1)}))


def test_a_transaction_that_is_open_on_two_replicas_counts_once() -> None:
    assert open_transactions(STATUSES) == {"t": 1}


def test_the_spread_is_that_of_one_partition() -> None:
    assert lso_spread(STATUSES) == {"t": 15, "u": 0}


def test_growth_is_between_two_looks_at_the_same_topic() -> None:
    before = Observation(1_000, log_bytes={"t": 100})
    assert growth(before, {"t": 300, "new": 5}, 3_000) == {"t": 100.0}
    assert growth(before, {"t": 300}, 1_000) == {}


class Looked:
    """A cluster of two topics, one of which may not be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unreadable: Sequence[str] = ()) -> None:
        self.unreadable = set(unreadable)
        self.failure: Exception | None = None
        monkeypatch.setattr("harness.protect.guard.observe.describe", self.describe)
        monkeypatch.setattr("harness.protect.guard.observe.prefilter", self.prefilter)
        monkeypatch.setattr(
            "harness.kafka_api.cluster_client.ClusterClient.ask_all", lambda *_: (self.sizes, self.errors)
        )
        self.sizes: dict[int, Any] = {1: {("t", 0): 100}, 2: {("t", 0): 50}}
        self.errors: dict[int, Exception] = {}

    def describe(self, client: ClusterClient, names: Sequence[str]) -> AuditedCluster:
        if self.failure is not None:
            raise self.failure
        state = PartitionState(1, (1, 2), (1, 2))
        brokers = {number: Address("b", number) for number in (1, 2)}
        return AuditedCluster(client, ClusterState("c", brokers, {n: TopicState(n, {0: state}) for n in names}), {})

    def prefilter(self, cluster: AuditedCluster) -> Prefiltered:
        for topic in cluster.state.topics:
            if topic in self.unreadable:
                raise UnreadableTopicError(topic)
        readable = {key: observing for key, observing in STATUSES.replicas.items() if key[1][0] in cluster.state.topics}
        return Prefiltered(replace(STATUSES, replicas=readable), None, (), ())  # type: ignore[arg-type]


def observer(clock: Any = None) -> GuardObserver:
    return GuardObserver([Address("b", 1)], clock or TickingClock())


def test_a_look_sums_up_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    Looked(monkeypatch)
    observing = observer()
    observing.observe(PAUSED)
    assert (observing.latest.open_transactions, observing.latest.log_bytes) == ({"t": 1}, {"t": 150})
    assert observing.latest.failure is None


def test_a_topic_that_may_not_be_read_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    Looked(monkeypatch, ["t"])
    observing = observer()
    observing.observe(COVERED)
    assert observing.latest.lso_spread == {"u": 0}
    assert observing.latest.sentences == ("this user may not read topic t: an audit needs Describe and Read on it",)
    Looked(monkeypatch, ["t", "u"])
    observing.observe(COVERED)
    assert (observing.latest.lso_spread, len(observing.latest.sentences)) == ({}, 2)


def test_a_look_that_fails_keeps_what_was_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    observing = observer()
    observing.observe(COVERED)
    looked.failure = HarnessError("no broker answers")
    observing.observe(COVERED)
    assert (observing.latest.lso_spread, observing.latest.failure) == ({"t": 15, "u": 0}, "no broker answers")


def test_sizes_that_a_broker_does_not_report_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    del looked.sizes[2]
    looked.errors[2] = HarnessError("not allowed")
    observing = observer()
    observing.observe(PAUSED)
    assert (observing.latest.log_bytes, observing.latest.failure) == (
        {"t": 100}, "sizes of logs are unknown on broker 2: not allowed"
    )  # fmt: skip


def test_an_observer_that_ends_by_a_bug_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Looked(monkeypatch).failure = RuntimeError("a bug")
    monkeypatch.setattr("harness.protect.guard.observe.FIRST_S", 0.01)
    observing, clock = observer(), RealClock()
    end = observing.start(0.01, lambda: COVERED)
    clock.wait_until(lambda: observing.latest.failure, 10, "the failure")
    end()
    assert observing.latest.failure == "observations ended: RuntimeError: a bug"
