"""Apache Kafka under test: everything by its own protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.kafka_api.connection import Connection
from harness.kafka_api.replica import WireReader
from harness.runtimes.base import live_addresses
from harness.schedules.timers import DAY_MS, FREEZE
from harness.systems import System
from harness.targets import KAFKA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.kafka_api.admin import Admin
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState
    from harness.kafka_api.replica import ReplicaReader
    from harness.runtimes.base import Runtime
    from harness.schedules.timers import Timers
    from harness.targets import Target

TRANSACTION_STATE = ("__transaction_state", 0)
CLEANER_BACKOFF = "log.cleaner.backoff.ms"
"""Setting it has the cleaner look once more, and then no more for as long."""


@dataclass
class KafkaControl:
    """Implements `harness.systems.Control`."""

    runtime: Runtime
    admin: Admin
    coordinator: TopicPartition = TRANSACTION_STATE

    def registered(self) -> set[int]:
        """Return the brokers that the metadata has: registered, and not fenced."""
        return self.admin.brokers()

    def active_controller(self) -> int | None:
        """Return who leads the quorum."""
        return self.admin.active_controller()

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return the metadata; in sync is who is in the ISR."""
        return self.admin.partitions(topics)

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassign replicas; their order makes the preferred leader."""
        self.admin.reassign(orders)

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Look at every broker's metadata: a client that asks one which does not know yet is sent to the old leader."""
        topics = sorted({topic for topic, _ in orders})
        views = [self.admin.partitions(topics, at=address) for address in live_addresses(self.runtime)]
        late = [tp for tp, order in orders.items() if any(tp not in v or v[tp].leader != order[0] for v in views)]
        if late:
            self.admin.elect_preferred(late)
        return not late

    def freeze(self, topics: Sequence[str]) -> None:
        """Give the topics settings under which no cleaner pass begins."""
        self.admin.alter_topics(topics, FREEZE)

    def is_frozen(self, topics: Sequence[str]) -> bool:
        """Look at the topics' settings on every broker."""
        settings = [self.admin.topic_settings(address, topics) for address in live_addresses(self.runtime)]
        return all(FREEZE.items() <= held.items() for by_topic in settings for held in by_topic.values())

    def thaw(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Give the topics their own settings again."""
        self.admin.alter_topics(topics, {name: settings.get(name) for name in FREEZE})

    def rest(self, brokers: Sequence[int], for_ms: int = DAY_MS) -> None:
        """Give each broker's cleaner a long backoff of its own."""
        for broker in brokers:
            self.admin.alter_broker(broker, self.runtime.address(broker), {CLEANER_BACKOFF: str(for_ms)})

    def is_resting(self, brokers: Sequence[int], for_ms: int = DAY_MS) -> bool:
        """Look at each broker's settings."""
        return all(
            self.admin.broker_settings(broker, self.runtime.address(broker))[CLEANER_BACKOFF] == str(for_ms)
            for broker in brokers
        )

    def wake(self, brokers: Sequence[int]) -> None:
        """Take the backoff back."""
        for broker in brokers:
            self.admin.alter_broker(broker, self.runtime.address(broker), {CLEANER_BACKOFF: None})

    def reader(self, broker: int) -> ReplicaReader:
        """Connect to the broker."""
        return WireReader(Connection(self.runtime.address(broker)))

    def compaction(self, _partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return nothing: a checkpoint file has the offset up to which the cleaner has come."""
        return {}

    def identities(self) -> dict[int, str]:
        """Return nothing: ``meta.properties`` carries the log directory's id."""
        return {}

    def file_logs(self, _folder: Path, *, is_up: bool) -> None:
        """Leave files as they are: checkers read them, ``is_up`` or not."""

    def coordination(self) -> dict[str, bool]:
        """Return nothing: replicas compact each by itself."""
        return {}


def settings(
    target: Target, timers: Timers, nemesis_settings: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return topic and broker settings by Kafka's names: the timers', with a nemesis's and the target's own on top."""
    topic = {**timers.topic, **target.topic_settings}
    return topic, {**timers.broker, **nemesis_settings, **target.broker_settings}


SYSTEMS = {KAFKA: System(name="Kafka", settings=settings, control=KafkaControl)}
