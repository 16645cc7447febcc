"""The window: it is open when everything critical is gone from everybody who is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import TickingClock

from harness import run, window
from harness.catalog import CONTROL
from harness.errors import HarnessError
from harness.request import RunOptions
from harness.runner import Outage
from harness.scenario import Critical

TOMBSTONE, MARKER = 10, 20
EVERYWHERE = {(broker, partition, offset) for broker in (1, 3) for partition in (0, 1) for offset in (10, 20)}


class FakePayload:
    """The control's payload on two partitions; ``unseen`` kinds were never seen on any replica."""

    scenario = CONTROL
    partitions = (("control", 0), ("control", 1))

    def __init__(self, *unseen: Critical) -> None:
        self.unseen = unseen

    def critical_offset(self, kind: Critical, _partition: tuple[str, int], _observer: Any) -> int | None:
        if kind in self.unseen:
            return None
        return TOMBSTONE if kind is Critical.TOMBSTONE else MARKER


@dataclass
class FakeCluster:
    """Broker 2 is away. ``removed``: (broker, partition, offset) of what is gone, all of it from a second on."""

    removed: set[tuple[int, int, int]]
    all_gone_at_s: float = 1000.0
    clock: TickingClock = field(default_factory=TickingClock)
    bounds_s: list[float] = field(default_factory=list)
    exposed: tuple[tuple[str, int], ...] = (("control", 0), ("control", 1))

    @property
    def observer(self) -> FakeCluster:
        return self

    def present(self, _partition: tuple[str, int]) -> list[int]:
        return [1, 3]

    def is_removed(self, broker: int, partition: tuple[str, int], offset: int) -> bool:
        return self.clock.now >= self.all_gone_at_s or (broker, partition[1], offset) in self.removed

    def wait(self, condition: Any, what: str, timeout_s: float) -> None:
        self.bounds_s.append(timeout_s)
        self.clock.wait_until(condition, timeout_s, what)


def waited(cluster: FakeCluster, *unseen: Critical) -> list[str]:
    """Wait for the window, and return what progress was told."""
    told: list[str] = []
    nothing: Any = None
    test = run.test_of(RunOptions("kafka-4.4", "stuck-lso"))
    outage = Outage(test, nothing, nothing, nothing, clock=cluster.clock, progress=told.append)
    parts: Any = SimpleNamespace(cluster=cluster, payloads=[FakePayload(*unseen)])
    outage._wait_removed(parts)
    return told


@pytest.mark.parametrize("gone", sorted(EVERYWHERE))
def test_nothing_was_missed_only_where_everything_is_kept_everywhere(gone: tuple[int, int, int]) -> None:
    payloads: Any = [FakePayload()]
    whole: Any = FakeCluster(set())
    something: Any = FakeCluster({gone})
    on_control: Any = FakeCluster({gone}, exposed=())
    assert window.is_kept(whole, payloads)
    assert not window.is_kept(something, payloads)
    assert window.is_kept(on_control, payloads), "nobody could have missed that"
    unseen: Any = [FakePayload(Critical.MARKER)]
    assert not window.is_kept(whole, unseen), "what nobody saw may be gone"


def test_a_window_is_open_where_everything_is_gone() -> None:
    cluster = FakeCluster(EVERYWHERE)
    assert waited(cluster) == []
    assert cluster.clock.now == 0
    assert cluster.bounds_s == [20.0]


@pytest.mark.parametrize("still", sorted(EVERYWHERE))
def test_one_record_on_one_replica_of_one_partition_keeps_it_shut(still: tuple[int, int, int]) -> None:
    cluster = FakeCluster(EVERYWHERE - {still}, all_gone_at_s=5)
    assert waited(cluster) == []
    assert cluster.clock.now == 5


@pytest.mark.parametrize("unseen", list(Critical))
def test_what_nobody_ever_saw_is_not_gone(unseen: Critical) -> None:
    (told,) = waited(FakeCluster(EVERYWHERE), unseen)
    assert told.startswith("the window does not open: ")


def test_a_window_that_does_not_open_ends_the_wait_and_not_the_run() -> None:
    assert waited(FakeCluster(set())) == [
        "the window does not open: the critical tombstones and markers to be removed",
    ]


def test_what_fails_meanwhile_ends_the_run() -> None:
    class Failing(FakeCluster):
        def wait(self, *_: Any) -> None:
            raise HarnessError("broker 3 ended by itself")

    with pytest.raises(HarnessError, match="broker 3 ended by itself"):
        waited(Failing(EVERYWHERE))
