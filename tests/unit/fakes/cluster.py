"""The cluster under test, all of whose parts are fakes, and the payload that was written to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.admin import DelayedAdmin, RecordingAdmin
from fakes.clock import TickingClock
from fakes.observer import CopyingObserver, FakeObserver
from fakes.runtime import FakeRuntime
from harness.cluster.cluster import Cluster
from harness.cluster.observe import ReplicaObserver
from harness.kafka_api import TopicPartition
from harness.schedules.catalog import CONTROL
from harness.schedules.placement import Placement
from harness.schedules.scenario import Critical
from harness.systems.kafka import KafkaControl
from workloads.payload import Payload

SETTLE_S = 30
TOPICS = ("aborted-to-committed", "stuck-lso")
TOMBSTONE, MARKER = 10, 20
"""Offsets of the critical records in each partition of the payload."""


class FakeCluster(Cluster):
    """Three brokers of which broker 2 is placed to be absent; transactions end and settings change at once."""

    runtime: FakeRuntime
    admin: DelayedAdmin
    observer: FakeObserver
    clock: TickingClock

    def __init__(
        self, replicas: Mapping[TopicPartition, tuple[int, ...]], *, admin: DelayedAdmin | None = None, **more: Any
    ) -> None:
        runtime, admin = FakeRuntime(), admin or DelayedAdmin()
        control, observer = KafkaControl(runtime, admin), FakeObserver(admin.clock)
        facts = {"observer": observer, "replicas": replicas, "absent": (2,), **more}
        super().__init__(runtime, admin, control, admin.clock, SETTLE_S, **facts)


@dataclass
class RecordedCluster(Cluster):
    """A cluster with two topics and a control; ``actions``: changes and waits, in order."""

    runtime: FakeRuntime
    observer: CopyingObserver
    actions: list[str] = field(default_factory=list)


def recorded_cluster(placement: Placement) -> RecordedCluster:
    actions: list[str] = []
    replicas = {
        (topic, partition): placement.replicas(partition, control=topic == "control")
        for topic in (*TOPICS, "control")
        for partition in range(placement.partitions)
    }
    clock, runtime = TickingClock(actions=actions), FakeRuntime(placement.brokers, actions)
    admin = RecordingAdmin(runtime, placement.controllers, replicas, actions)
    control, observer = KafkaControl(runtime, admin), CopyingObserver(clock, runtime, actions)
    return RecordedCluster(
        runtime, admin, control, clock, SETTLE_S,
        observer=observer, replicas=replicas, absent=placement.absent, actions=actions,
    )  # fmt: skip


class FakePayload(Payload):
    """The control's payload on two partitions; ``unseen`` kinds were never seen on any replica."""

    def __init__(self, *unseen: Critical) -> None:
        self.scenario = CONTROL
        self.partitions = [(CONTROL.name, 0), (CONTROL.name, 1)]
        self.unseen = unseen

    def critical_offset(self, kind: Critical, _partition: TopicPartition, _observer: ReplicaObserver) -> int | None:
        offset = TOMBSTONE if kind is Critical.TOMBSTONE else MARKER
        return None if kind in self.unseen else offset
