"""Apache Kafka under test: all requests are part of its protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.kafka_api import TopicPartition
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import ReplicaReader, WireReader
from harness.runtimes.base import Runtime, live_addresses
from harness.schedules.timers import DAY_MS, FREEZE, Timers
from harness.systems import System, SystemSettings
from harness.targets import KAFKA, Target

TRANSACTION_STATE = ("__transaction_state", 0)
CLEANER_BACKOFF = "log.cleaner.backoff.ms"
"""After a change of this setting the cleaner looks for work once more, and then pauses for this time."""


@dataclass
class KafkaControl:
    """Implements `harness.systems.Control`. ``rest_ms``: longer than any run. ``lists_open``: of transactions."""

    runtime: Runtime
    admin: Admin
    rest_ms: int = DAY_MS
    coordinator: TopicPartition = TRANSACTION_STATE
    lists_open: bool = True

    def __post_init__(self) -> None:
        """Use requests of the admin without a change; the first replica of a reassignment is the preferred leader."""
        self.registered, self.active_controller = self.admin.brokers, self.admin.active_controller
        self.states, self.lead = self.admin.partitions, self.admin.reassign

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Compare the metadata of every broker, as a broker with old metadata sends clients to the old leader."""
        if late := self._late(orders):
            self.admin.elect_preferred(late)
        return not late or not self._late(orders)

    def _late(self, orders: Mapping[TopicPartition, Sequence[int]]) -> list[TopicPartition]:
        topics = sorted({topic for topic, _ in orders})
        views = [self.admin.partitions(topics, at=address) for address in live_addresses(self.runtime)]
        return [tp for tp, order in orders.items() if any(tp not in v or v[tp].leader != order[0] for v in views)]

    def freeze(self, topics: Sequence[str]) -> None:
        """Set topic settings under which no cleaner pass begins."""
        self.admin.alter_topics(topics, FREEZE)

    def is_frozen(self, topics: Sequence[str]) -> bool:
        """Compare the topics' settings on every live broker."""
        views = [self.admin.topic_settings(address, topics) for address in live_addresses(self.runtime)]
        return all(FREEZE.items() <= settings.items() for by_topic in views for settings in by_topic.values())

    def thaw(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Restore the topics' settings."""
        self.admin.alter_topics(topics, {name: settings.get(name) for name in FREEZE})

    def rest(self, brokers: Sequence[int], for_ms: int | None = None) -> None:
        """Set a long back-off of each broker's cleaner."""
        self._set_backoff(brokers, str(for_ms or self.rest_ms))

    def is_resting(self, brokers: Sequence[int], for_ms: int | None = None) -> bool:
        """Compare each broker's settings."""
        settings = (self.admin.broker_settings(broker, self.runtime.address(broker)) for broker in brokers)
        return all(by_name[CLEANER_BACKOFF] == str(for_ms or self.rest_ms) for by_name in settings)

    def wake(self, brokers: Sequence[int]) -> None:
        """Restore the back-off of each broker's cleaner."""
        self._set_backoff(brokers, None)

    def _set_backoff(self, brokers: Sequence[int], backoff_ms: str | None) -> None:
        for broker in brokers:
            self.admin.alter_broker(broker, self.runtime.address(broker), {CLEANER_BACKOFF: backoff_ms})

    def reader(self, broker: int) -> ReplicaReader:
        """Connect to the broker."""
        return WireReader(Connection(self.runtime.address(broker)), self.lists_open)

    def compaction(self, _partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return nothing: the offset that the cleaner has reached is in a checkpoint file."""
        return {}

    def identities(self) -> dict[int, str]:
        """Return nothing: the id of a log directory is in ``meta.properties``."""
        return {}

    def file_logs(self, _folder: Path, *, is_up: bool) -> None:
        """Do nothing: the files are in Kafka's format."""

    def coordination(self) -> dict[str, bool]:
        """Return nothing: each replica is compacted independently."""
        return {}


def kafka_settings(target: Target, timers: Timers, nemesis_settings: Mapping[str, str]) -> SystemSettings:
    """Return topic and broker settings; settings of the nemesis and the target replace the timers'."""
    return dict(timers.topic), {**timers.broker, **nemesis_settings, **target.broker_settings}


SYSTEMS = {KAFKA: System(name="Kafka", settings=kafka_settings, control=KafkaControl)}
