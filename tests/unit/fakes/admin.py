"""Administrative requests to brokers by Kafka's protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fakes.clock import TickingClock
from fakes.runtime import FakeRuntime
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.admin import Admin
from harness.kafka_api.metadata import PartitionState
from harness.schedules.timers import FREEZE

PARTITION = ("stuck-lso", 0)
LEARNS_AFTER_S = 3


@dataclass
class RecordingAdmin(Admin):
    """Records requests in ``actions``; brokers that are down leave the ISR, and are not registered."""

    runtime: FakeRuntime
    controllers: Sequence[int]
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    actions: list[str]
    settings: dict[int, dict[str, str]] = field(default_factory=dict)
    assigned: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)

    def alter_topics(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        self.actions.append(f"topics {', '.join(topics)}: {dict(settings)}")

    def alter_brokers(self, settings: Mapping[str, str | None]) -> None:
        self.actions.append(f"brokers: {dict(settings)}")

    def alter_broker(self, broker: int, _address: Address, settings: Mapping[str, str | None]) -> None:
        self.actions.append(f"broker {broker}: {dict(settings)}")
        self.settings[broker] = {name: value for name, value in settings.items() if value is not None}

    def broker_settings(self, broker: int, _address: Address) -> dict[str, str]:
        return self.settings[broker]

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.actions.append(f"reassign {dict(replicas)}")
        self.assigned |= {tp: tuple(brokers) for tp, brokers in replicas.items()}

    def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        self.leaders |= {tp: self.assigned[tp][0] for tp in partitions}

    def brokers(self) -> set[int]:
        return set(self.runtime.brokers) - self.runtime.down

    def active_controller(self) -> int | None:
        """Return the first controller that is up."""
        self.actions.append("who is the controller?")
        return next(broker for broker in self.controllers if self.runtime.is_up(broker))

    def partitions(self, _topics: Sequence[str], at: Address | None = None) -> dict[TopicPartition, PartitionState]:
        del at

        def state(tp: TopicPartition, replicas: tuple[int, ...]) -> PartitionState:
            isr = tuple(broker for broker in replicas if self.runtime.is_up(broker))
            return PartitionState(self.leaders.get(tp, self.replicas[tp][0]), replicas, isr)

        return {tp: state(tp, replicas) for tp, replicas in {**self.replicas, **self.assigned}.items()}


@dataclass
class DelayedAdmin(Admin):
    """Transactions end, brokers answer and topics are frozen from the given second on.

    A broker learns of its settings after `LEARNS_AFTER_S`; ``changes`` has each change with its second and broker.
    """

    clock: TickingClock = field(default_factory=TickingClock)
    ending_until_s: float = 0.0
    silent_until_s: float = 0.0
    frozen_from_s: float = 0.0
    changes: list[tuple[float, int, Mapping[str, str | None]]] = field(default_factory=list)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)

    def partitions(self, _topics: Sequence[str], _at: Address | None = None) -> dict[TopicPartition, PartitionState]:
        return self.states

    def ending_transactions(self) -> list[str]:
        if self.clock.now < self.silent_until_s:
            raise OSError("no broker answers")
        return ["filler.tx0"] if self.clock.now < self.ending_until_s else []

    def alter_broker(self, broker: int, address: Address, settings: Mapping[str, str | None]) -> None:
        assert address.port == 9000 + broker, "no other broker takes it"
        self.changes.append((self.clock.now, broker, settings))

    def broker_settings(self, broker: int, _address: Address) -> dict[str, str]:
        values = {"log.cleaner.backoff.ms": "60"}
        for at_s, whose, settings in self.changes:
            if whose == broker and self.clock.now >= at_s + LEARNS_AFTER_S:
                values |= {name: value for name, value in settings.items() if value is not None}
        return values

    def topic_settings(self, _address: Address, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        return dict.fromkeys(topics, FREEZE if self.clock.now >= self.frozen_from_s else {})


@dataclass
class LeaderAdmin(Admin):
    """Each broker has its own ``leaders`` of `PARTITION` in its metadata, until a reassignment makes one the leader."""

    leaders: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 1))
    reassignments: list[Mapping[TopicPartition, Sequence[int]]] = field(default_factory=list)

    def partitions(self, _topics: Sequence[str], at: Address | None = None) -> dict[TopicPartition, PartitionState]:
        leader = self.leaders[at.port - 9000 if at else 1]
        return {PARTITION: PartitionState(leader, (1, 3, 2), (1, 3, 2))}

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.reassignments.append(replicas)
        self.leaders = dict.fromkeys(self.leaders, replicas[PARTITION][0])
