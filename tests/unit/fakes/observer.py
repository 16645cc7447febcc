"""A fake observer of replicas."""

from dataclasses import dataclass, field

from fakes.clock import TickingClock
from fakes.runtime import FakeRuntime
from harness.cluster.observe import ObservedReplica, ReplicaObserver
from harness.kafka_api import TopicPartition

WHOLE_END = 5
WHOLE = ObservedReplica(log_start=0, high_watermark=WHOLE_END, last_stable_offset=WHOLE_END, log_end=WHOLE_END)
PAYLOAD_END, BALLAST_END = 5, 50
VALUE = ("value", -1)


@dataclass
class FakeObserver(ReplicaObserver):
    """Has ``views`` of replicas by broker; the last poll began ``lag_s`` seconds ago.

    ``removed``: (broker, partition, offset) of removed records; from ``all_removed_at_s`` on every record is removed.
    ``marker_distance``: how far the marker of a transaction lies from its records; None while no marker was seen.
    """

    clock: TickingClock
    views: dict[int, ObservedReplica | None] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), WHOLE))
    lag_s: float = 0.0
    removed: set[tuple[int, int, int]] = field(default_factory=set)
    all_removed_at_s: float = 1000.0
    marker_distance: int | None = 100

    def view(self, broker: int, _partition: TopicPartition) -> ObservedReplica | None:
        return self.views.get(broker)

    def looked_since(self, _broker: int, since_s: float) -> bool:
        return self.clock.now - self.lag_s >= since_s

    def seen(self, _partition: TopicPartition) -> dict[int, tuple[str, int]]:
        return dict.fromkeys(range(WHOLE_END), VALUE)

    def marker_after(self, _partition: TopicPartition, offset: int) -> int | None:
        return None if self.marker_distance is None else offset + self.marker_distance

    def is_removed(self, broker: int, partition: TopicPartition, offset: int) -> bool:
        return self.clock.now >= self.all_removed_at_s or (broker, partition[1], offset) in self.removed


@dataclass
class CopyingObserver(ReplicaObserver):
    """Sees brokers that stay at the end, and the others as far as they have copied: a record each second."""

    clock: TickingClock
    runtime: FakeRuntime
    actions: list[str]
    ends: dict[int, int] = field(default_factory=dict)

    def seen(self, _partition: TopicPartition) -> dict[int, tuple[str, int]]:
        return dict.fromkeys(range(BALLAST_END if "ballast" in self.actions else PAYLOAD_END), VALUE)

    def looked_since(self, broker: int, since_s: float) -> bool:
        return self.runtime.is_up(broker) and self.clock.now >= since_s + 1

    def view(self, broker: int, partition: TopicPartition) -> ObservedReplica | None:
        if not any(action.startswith("reassign") for action in self.actions) or partition[0] == "control":
            return None
        self.ends[broker] = end = self.ends.get(broker, 0) + 1
        return ObservedReplica(log_start=0, high_watermark=end, last_stable_offset=end, log_end=end)
