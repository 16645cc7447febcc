"""Waits on the cluster: a phase ends only when everything that belongs to it is on every replica."""

from dataclasses import replace
from threading import Barrier
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from fakes.admin import PARTITION as TOPIC
from fakes.admin import DelayedAdmin, LeaderAdmin
from fakes.cluster import FakeCluster, recorded_cluster
from fakes.observer import WHOLE
from fakes.runtime import FakeRuntime
from kafka.protocol.metadata import FindCoordinatorResponse

from harness.cluster.observe import ObservedReplica
from harness.cluster.routines import at_once
from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.messages import message
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.security import Security
from harness.play import stale_requests
from harness.play.failures import stalled_replica
from harness.schedules.placement import Placement
from harness.systems.kafka import KafkaControl


def fake(**delays: Any) -> FakeCluster:
    return FakeCluster({TOPIC: Placement().replicas(0)}, admin=DelayedAdmin(**delays))


@pytest.mark.parametrize(("delays", "lag_s", "ends_s"), [({"ending_until_s": 5}, 3, 8), ({"silent_until_s": 4}, 0, 4)])
def test_markers_of_a_commit_are_awaited_until_observed_and_a_silent_broker_is_asked_again(
    delays: dict[str, int], lag_s: int, ends_s: int
) -> None:
    subject = fake(**delays)
    subject.observer.lag_s = lag_s
    subject.wait_replicated("all of it")
    assert subject.clock.now >= ends_s


@pytest.mark.parametrize(
    "behind",
    [replace(WHOLE, log_end=4, high_watermark=4), replace(WHOLE, high_watermark=4), None],
    ids=["shorter log", "high watermark behind", "never seen"],
)
def test_a_late_replica_is_awaited(behind: ObservedReplica | None) -> None:
    subject = fake()
    subject.observer.views[3] = behind
    with pytest.raises(WaitTimeoutError, match="all of it") as raised:
        subject.wait_replicated("all of it")
    assert raised.value.replica == (3, *TOPIC)


@pytest.mark.parametrize(("away", "end"), [((), 5), ((2,), 1)])
def test_a_wait_ends_at_once_if_everything_is_replicated_on_present_brokers(away: tuple[int, ...], end: int) -> None:
    subject = fake()
    subject.observer.views[2] = replace(WHOLE, log_end=end, high_watermark=end)
    subject.away = frozenset(away)
    subject.wait_replicated("all of it")
    assert subject.clock.now == 0


@pytest.mark.parametrize(("back_s", "stalled"), [(15.0, None), (1000.0, (3, 140.0, 0.25))])
def test_a_replica_that_does_not_come_back_has_stalled(back_s: float, stalled: tuple[int, float, float] | None) -> None:
    class Subject(FakeCluster):
        def read(self, *_: Any) -> dict[Any, Any]:
            self.clock.now += 0.25
            return {}

        def out_of_isr(self) -> list[tuple[int, Any]]:
            return [(3, TOPIC)] if self.clock.now < back_s else []

    stall = stalled_replica(Subject({TOPIC: Placement().replicas(0)}), waited_s=120)
    assert stalled == (stall and (stall["broker"], stall["waited_s"], stall["longest_silence_s"]))


def test_requests_to_a_coordinator_log_in_like_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, login, found = fake(), Security("file", {}), message(FindCoordinatorResponse, 3, node_id=2, host="b")
    monkeypatch.setattr(FakeRuntime, "address", lambda _, broker: Address("b", broker, login))
    monkeypatch.setattr(stale_requests, "ask", lambda _where, request, _policy: request.decode(found))
    coordinator = stale_requests._Requests(subject).coordinator()
    assert (coordinator, coordinator.security) == (Address("b", 2), login)


def test_a_failure_in_the_background_ends_a_wait() -> None:
    subject = fake(ending_until_s=5)
    subject.checks.append(MagicMock(side_effect=HarnessError("broker 3 ended by itself")))
    with pytest.raises(HarnessError, match="broker 3 ended by itself"):
        subject.wait_replicated("all of it")
    assert subject.clock.now == 0


def test_only_partitions_on_absent_brokers_are_exposed() -> None:
    subject = fake()
    subject.replicas = {("stuck-lso", 0): (1, 3, 2), ("stuck-lso", 1): (3, 1, 2), ("control", 0): (1, 3)}
    assert subject.exposed == [("stuck-lso", 0), ("stuck-lso", 1)]
    assert subject.topics == ["stuck-lso", "control"]
    assert subject.present(TOPIC) == [1, 3, 2]
    subject.away = frozenset({2})
    assert subject.present(TOPIC) == [1, 3]


def test_records_of_the_filler_are_awaited_on_each_replica_up_to_its_log_end() -> None:
    subject = fake()
    subject.observer.views = dict.fromkeys((1, 2), replace(WHOLE, log_end=9))
    with pytest.raises(WaitTimeoutError, match="the filler's records on every replica"):
        subject.wait_grown(4)
    subject.observer.views[3] = replace(WHOLE, log_end=9)
    subject.wait_grown(4)
    assert [fake().reaches(1, TOPIC, offset) for offset in (5, 6)] == [True, False]


@pytest.mark.parametrize(("leader", "asked"), [(1, []), (2, [{TOPIC: [1, 3, 2]}])], ids=["as placed", "elsewhere"])
def test_the_first_placed_replica_leads(leader: int, asked: list[Any]) -> None:
    admin = LeaderAdmin(dict.fromkeys((1, 2, 3), leader))
    subject = fake()
    subject.control = KafkaControl(subject.runtime, admin)
    subject.lead_as_placed()
    assert admin.reassignments == asked


def test_an_assignment_is_awaited_independently_of_the_isr() -> None:
    subject = fake()
    subject.admin.states = {TOPIC: PartitionState(1, (1, 3), isr=(1,))}
    subject.wait_assigned({TOPIC: (3, 1)})
    subject.wait_assigned({})
    with pytest.raises(WaitTimeoutError, match="replicas to be assigned as asked"):
        subject.wait_assigned({TOPIC: (1, 3, 2)})


def test_cleaners_rest_before_their_brokers_are_unreachable_and_wake_after_the_freeze_is_applied() -> None:
    subject = fake()
    subject.rest_cleaners_of_absent()
    assert [change[1:] for change in subject.admin.changes] == [(2, {"log.cleaner.backoff.ms": "86400000"})]
    assert subject.clock.now >= 3, "not before the broker has applied it"
    subject = fake(frozen_from_s=5)
    subject.wake_cleaners_of_absent()
    assert subject.admin.changes == [(5, 2, {"log.cleaner.backoff.ms": None})]


def test_actions_run_at_once_and_the_first_error_is_raised_as_it_is() -> None:
    cluster, both = replace(recorded_cluster(Placement()), clock=RealClock()), Barrier(2)

    def meet() -> None:
        both.wait(5)

    at_once(cluster, {"one": meet, "two": meet}, 10.0)
    late = WaitTimeoutError("the follower is late", 1.0)
    with pytest.raises(WaitTimeoutError) as raised:
        at_once(cluster, {"one": Mock(side_effect=late), "two": Mock()}, 10.0)
    assert raised.value is late
    with pytest.raises(HarnessError, match="one failed: 'a bug'"):
        at_once(cluster, {"one": Mock(side_effect=KeyError("a bug"))}, 10.0)
