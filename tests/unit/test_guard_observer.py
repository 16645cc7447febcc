"""Observations of the guard: sizes of paused topics' logs, and failures."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes.clock import TickingClock

from harness.audit.live.cluster import AuditedCluster
from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.protect.guard.journal import Pause, PausePhase, PauseState
from harness.protect.guard.run import GuardObserver, Observation, growth
from harness.protect.guard.service import GuardStatus

COVERED = GuardStatus(covered=frozenset({"t", "u"}))
PAUSED = replace(COVERED, state=PauseState({"t": Pause("t", PausePhase.PAUSED, "c", {}, 1)}))


def test_growth_is_between_two_looks_at_the_same_topic() -> None:
    before = Observation(1_000, log_bytes={"t": 100})
    assert growth(before, {"t": 300, "new": 5}, 3_000) == {"t": 100.0}
    assert growth(before, {"t": 300}, 1_000) == {}


class Looked:
    """A cluster whose brokers report the sizes of logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failure: Exception | None = None
        self.described: list[Sequence[str]] = []
        monkeypatch.setattr("harness.protect.guard.run.describe", self.describe)
        monkeypatch.setattr("harness.kafka_api.connection.ClusterClient.ask_all", lambda *_: (self.sizes, self.errors))
        self.sizes: dict[int, Any] = {1: {("t", 0): 100}, 2: {("t", 0): 50}}
        self.errors: dict[int, Exception] = {}

    def describe(self, client: ClusterClient, names: Sequence[str]) -> AuditedCluster:
        self.described.append(names)
        if self.failure is not None:
            raise self.failure
        state = PartitionState(1, (1, 2), (1, 2))
        brokers = {number: Address("b", number) for number in (1, 2)}
        return AuditedCluster(client, ClusterState("c", brokers, {n: TopicState(n, {0: state}) for n in names}), {})


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


def observer() -> GuardObserver:
    return GuardObserver([Address("b", 1)], TickingClock())


def test_a_look_at_paused_topics_alone_sums_up_by_topic(looked: Looked) -> None:
    observing = observer()
    for status, described, log_bytes in ((COVERED, [], {}), (PAUSED, [["t"]], {"t": 150})):
        observing.observe(status)
        assert (looked.described, observing.latest.log_bytes) == (described, log_bytes)
        assert observing.latest.failure is None


@pytest.mark.parametrize("failure", [HarnessError("no broker answers"), RuntimeError("no broker answers")])
def test_a_look_that_fails_keeps_what_was_seen_before(looked: Looked, failure: Exception) -> None:
    observing = observer()
    observing.observe(PAUSED)
    looked.failure = failure
    observing.observe(PAUSED)
    assert (observing.latest.log_bytes, observing.latest.failure) == ({"t": 150}, "no broker answers")


def test_sizes_that_a_broker_does_not_report_are_said(looked: Looked) -> None:
    observing = observer()
    del looked.sizes[2]
    looked.errors[2] = HarnessError("not allowed")
    observing.observe(PAUSED)
    assert observing.latest.log_bytes == {"t": 100}
    assert observing.latest.failure == "sizes of logs are unknown on broker 2: not allowed"
