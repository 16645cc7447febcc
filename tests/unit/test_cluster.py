"""Waits on the cluster: a phase ends only when everything that belongs to it is on every replica."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fakes import TickingClock

from harness.cluster import Cluster
from harness.errors import HarnessError, WaitTimeoutError
from harness.observe import View
from harness.placement import Placement
from harness.protocol.admin import PartitionState
from harness.protocol.wire import Address
from harness.systems.kafka import KafkaControl
from harness.timers import FREEZE

TOPIC = ("stuck-lso", 0)
WHOLE = View(log_start=0, high_watermark=5, last_stable_offset=5, log_end=5)


class FakeRuntime:
    brokers = (1, 2, 3)

    def is_up(self, _broker: int) -> bool:
        return True

    def address(self, broker: int) -> Address:
        return Address("127.0.0.1", 9000 + broker)

    def raise_if_died(self) -> None:
        """Nothing died."""


@dataclass
class FakeObserver:
    """Replicas as they look at each second; the last look began ``lag_s`` seconds ago."""

    clock: TickingClock
    views: dict[int, View] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), WHOLE))
    lag_s: float = 0.0

    def view(self, broker: int, _partition: tuple[str, int]) -> View | None:
        return self.views.get(broker)

    def looked_since(self, _broker: int, since_s: float) -> bool:
        return self.clock.now - self.lag_s >= since_s

    def seen(self, _partition: tuple[str, int]) -> dict[int, tuple[str, int]]:
        return dict.fromkeys(range(5), ("value", -1))


@dataclass
class FakeAdmin:
    """Has transactions that are still ending until a certain second."""

    clock: TickingClock
    ending_until_s: float = 0.0
    silent_until_s: float = 0.0
    silence: type[OSError] = ConnectionRefusedError

    def ending_transactions(self) -> list[str]:
        if self.clock.now < self.silent_until_s:
            raise self.silence
        return ["filler.tx0"] if self.clock.now < self.ending_until_s else []


@dataclass
class FakeSubject:
    """A cluster of three brokers that hold one partition, and its parts."""

    cluster: Cluster
    observer: FakeObserver
    clock: TickingClock


def fake(**admin: Any) -> FakeSubject:
    clock = TickingClock()
    observer = FakeObserver(clock)
    placement = Placement()
    replicas = {TOPIC: placement.replicas(0)}
    runtime: Any = FakeRuntime()
    asked: Any = FakeAdmin(clock, **admin)
    control = KafkaControl(runtime, asked)
    cluster = Cluster(runtime, asked, control, observer, placement, replicas, clock, settle_s=30)  # type: ignore[arg-type]
    return FakeSubject(cluster, observer, clock)


def test_a_phase_ends_at_once_where_everything_is_there() -> None:
    subject = fake()
    subject.cluster.wait_replicated("all of it")
    assert subject.clock.now == 0


def test_a_commit_that_was_answered_is_waited_for_until_its_markers_are_written() -> None:
    subject = fake(ending_until_s=5)
    subject.cluster.wait_replicated("all of it")
    assert subject.clock.now >= 5


def test_what_was_seen_before_the_markers_were_written_does_not_count() -> None:
    subject = fake(ending_until_s=5)
    subject.observer.lag_s = 3
    subject.cluster.wait_replicated("all of it")
    assert subject.clock.now >= 8


@pytest.mark.parametrize(
    "silence", [ConnectionRefusedError, TimeoutError, OSError], ids=["refused", "mute", "no route"]
)
def test_a_broker_that_does_not_answer_now_may_answer_later(silence: type[OSError]) -> None:
    subject = fake(silent_until_s=4, silence=silence)
    subject.cluster.wait_replicated("all of it")
    assert subject.clock.now >= 4


@pytest.mark.parametrize(
    "behind",
    [replace(WHOLE, log_end=4, high_watermark=4), replace(WHOLE, high_watermark=4), None],
    ids=["shorter log", "high watermark behind", "never seen"],
)
def test_one_replica_that_is_behind_is_waited_for(behind: View | None) -> None:
    subject = fake()
    subject.observer.views[3] = behind  # type: ignore[assignment]
    with pytest.raises(WaitTimeoutError, match="all of it"):
        subject.cluster.wait_replicated("all of it")


def test_who_is_away_is_not_waited_for_even_when_it_answers() -> None:
    subject = fake()
    subject.observer.views[2] = replace(WHOLE, log_end=1, high_watermark=1)
    subject.cluster.away = frozenset({2})
    subject.cluster.wait_replicated("all of it")
    assert subject.clock.now == 0


def test_what_failed_in_the_background_ends_a_wait_at_once() -> None:
    def fail() -> None:
        raise HarnessError("broker 3 ended by itself")

    subject = fake(ending_until_s=5)
    subject.cluster.checks.append(fail)
    with pytest.raises(HarnessError, match="broker 3 ended by itself"):
        subject.cluster.wait_replicated("all of it")
    assert subject.clock.now == 0


def test_only_partitions_on_absent_brokers_are_exposed() -> None:
    subject = fake()
    subject.cluster.replicas = {("stuck-lso", 0): (1, 3, 2), ("stuck-lso", 1): (3, 1, 2), ("control", 0): (1, 3)}
    assert subject.cluster.exposed == [("stuck-lso", 0), ("stuck-lso", 1)]
    assert subject.cluster.topics == ["stuck-lso", "control"]


def test_who_is_away_is_not_among_those_that_are_present() -> None:
    subject = fake()
    assert subject.cluster.present(TOPIC) == [1, 3, 2]
    subject.cluster.away = frozenset({2})
    assert subject.cluster.present(TOPIC) == [1, 3]


def test_the_filler_is_waited_for_on_each_replica() -> None:
    subject = fake()
    subject.observer.views = dict.fromkeys((1, 2), replace(WHOLE, log_end=9))
    with pytest.raises(WaitTimeoutError, match="the filler's records on every replica"):
        subject.cluster.wait_grown(4)
    subject.observer.views[3] = replace(WHOLE, log_end=9)
    subject.cluster.wait_grown(4)


@pytest.mark.parametrize(
    ("offset", "reached"), [(5, True), (6, False)], ids=["everything below is there", "one is missing"]
)
def test_a_replica_reaches_its_log_end(offset: int, *, reached: bool) -> None:
    assert fake().cluster.reaches(1, TOPIC, offset) == reached


class FakeLeaders:
    """A control of brokers of which the wrong one leads until it is asked for."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.asked: list[Any] = []

    def states(self, _topics: list[str]) -> dict[tuple[str, int], PartitionState]:
        return {TOPIC: PartitionState(self.leader, (1, 3, 2), (1, 3, 2))}

    def lead(self, orders: dict[tuple[str, int], list[int]]) -> None:
        self.asked.append(orders)
        self.leader = orders[TOPIC][0]

    def leads(self, orders: dict[tuple[str, int], list[int]]) -> bool:
        return self.leader == orders[TOPIC][0]


@pytest.mark.parametrize(("leader", "asked"), [(1, []), (2, [{TOPIC: [1, 3, 2]}])], ids=["as placed", "elsewhere"])
def test_partitions_are_led_by_who_was_placed_first(leader: int, asked: list[Any]) -> None:
    subject = fake()
    control: Any = FakeLeaders(leader)
    subject.cluster.control = control
    subject.cluster.lead_as_placed()
    assert control.asked == asked


@dataclass
class FakeSettings:
    """An admin whose changes take brokers three seconds to learn."""

    clock: TickingClock
    told: list[tuple[float, int, dict[str, str | None]]] = field(default_factory=list)
    frozen_from_s: float = 0.0

    def alter_broker(self, broker: int, address: Address, settings: dict[str, str | None]) -> None:
        assert address.port == 9000 + broker, "no other broker takes it"
        self.told.append((self.clock.now, broker, settings))

    def broker_settings(self, broker: int, _address: Address) -> dict[str, str]:
        known = {"log.cleaner.backoff.ms": "60"}
        for at_s, whose, settings in self.told:
            if whose == broker and self.clock.now >= at_s + 3:
                known |= {name: value for name, value in settings.items() if value is not None}
        return known

    def topic_settings(self, _address: Address, topics: list[str]) -> dict[str, dict[str, str]]:
        return dict.fromkeys(topics, FREEZE if self.clock.now >= self.frozen_from_s else {})


def test_cleaners_rest_before_their_brokers_go_out_of_reach() -> None:
    subject = fake()
    settings: Any = FakeSettings(subject.clock)
    subject.cluster.control = KafkaControl(subject.cluster.runtime, settings)
    subject.cluster.rest_cleaners_of_absent()
    assert [(broker, told) for _, broker, told in settings.told] == [(2, {"log.cleaner.backoff.ms": "86400000"})]
    assert subject.clock.now >= 3, "not before the broker has it"


def test_cleaners_wake_once_the_returned_brokers_know_of_the_freeze() -> None:
    subject = fake()
    settings: Any = FakeSettings(subject.clock, frozen_from_s=5)
    subject.cluster.control = KafkaControl(subject.cluster.runtime, settings)
    subject.cluster.wake_cleaners_of_absent()
    assert settings.told == [(5, 2, {"log.cleaner.backoff.ms": None})]
