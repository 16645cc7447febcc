"""The cluster: what befalls its brokers, who leads, and who has replicas.

Sources: ``ReplicationControlManager`` and ``BrokerHeartbeatManager`` (sessions, leaders, replicas); Kafka 3.9 to 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from models.cluster.broker import Broker
from models.cluster.cleaners import Cleaners
from models.cluster.cleaning import KAFKA, Compactor
from models.cluster.cloud import CloudStore
from models.cluster.copying import Copying
from models.cluster.network import Network
from models.cluster.partition import SimPartition, Sizes, begins_segment
from models.cluster.protection import Protection
from models.cluster.settings import BROKER, TOPIC, numbers, refuse_unknown
from models.replica import Replica
from models.replication import Replication
from models.rules import Rules as VersionRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from models.batch import Batch
    from models.clock import VirtualClock

TopicPartition = tuple[str, int]

START_S = 1.0
"""How long a broker takes to start and to be registered, give or take half of it."""


class Compaction(Protocol):
    """Who compacts what: each broker its own replicas (`Cleaners`), or any broker the one copy (`CloudStore`)."""

    def begin(self, partition: SimPartition) -> None:
        """Begin with a partition that was just created."""
        ...

    def notice(self, partition: SimPartition, broker: int) -> None:
        """A replica is not what it was."""
        ...

    def wake(self) -> None:
        """Settings have changed: there may be more to do."""
        ...

    def crash(self, broker: int) -> None:
        """A broker has ended, or begun: what it was at is forgotten."""
        ...

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return what a broker serves of a partition."""
        ...


@dataclass(frozen=True)
class ClusterRules:
    """By what a cluster compacts: ``compactor`` is each broker's own part.

    ``coordinated``: only what all replicas allow is removed. ``shared``: there is one copy, as in Cloud Topics, and
    replicas clean nothing. ``reports_s``: how often replicas tell their leader how far they are, where it has not heard
    of it. ``version``: what differs between Kafka's.
    """

    compactor: Compactor = KAFKA
    coordinated: bool = False
    shared: bool = False
    reports_s: float = 1.0
    version: VersionRules = field(default_factory=VersionRules)


@dataclass
class SimCluster:
    """Brokers that are not started yet. All that is left to chance comes from ``random``."""

    clock: VirtualClock
    random: Random
    broker_ids: Sequence[int]
    settings: Mapping[str, str]
    rules: ClusterRules = field(default_factory=ClusterRules)
    brokers: dict[int, Broker] = field(init=False)
    network: Network = field(init=False)
    partitions: dict[TopicPartition, SimPartition] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    _protection: Protection | None = field(init=False, default=None)
    _copying: Copying = field(init=False)
    _compaction: Compaction = field(init=False)
    _topic_numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the brokers. Raises `UsageError` for a setting that the model has no rule for."""
        refuse_unknown("broker", BROKER, self.settings)
        self.brokers = {one: Broker(one, self.settings, self.random.random()) for one in self.broker_ids}
        self.network = Network(self.random)
        if self.rules.coordinated:
            self._protection = Protection(self, self.rules.reports_s)
        self._copying = Copying(self)
        self._compaction = CloudStore(self) if self.rules.shared else Cleaners(self)

    # Topics.

    def create(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics. Raises `UsageError` for a setting that the model has no rule for."""
        for (topic, number), brokers in replicas.items():
            self.topics.setdefault(topic, dict(settings))
            self._topic_numbers.setdefault(topic, numbers("topic", TOPIC, settings))
            self.partitions[topic, number] = self._partition(topic, number, brokers)

    def _partition(self, topic: str, number: int, brokers: Sequence[int]) -> SimPartition:
        def rolls(replica: Replica, batch: Batch) -> bool:
            given = self.topic(topic)
            # A topic that is compacted rolls its segments in time for the latest pass (``LogConfig.maxSegmentMs``).
            segment_ms = min(given["segment.ms"], given["max.compaction.lag.ms"])
            return begins_segment(segment_ms, given["segment.bytes"], self.sizes, replica, batch)

        away = {one for one in brokers if not self.brokers[one].is_registered}
        replication = Replication({one: self._replica(one) for one in brokers}, brokers[0], rolls, away)
        made = SimPartition(topic, number, replication, tuple(brokers))
        if self._protection is not None:
            self._protection.begin(made)
        self._compaction.begin(made)
        return made

    def _replica(self, broker: int) -> Replica:
        return Replica(broker, stable_at_batch=self.rules.version.stable_at_batch)

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return what a broker serves of a partition."""
        return self._compaction.served(partition, broker)

    def topic(self, name: str) -> dict[str, float]:
        """Return a topic's numbers."""
        return self._topic_numbers[name]

    def alter(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Change settings of topics; None takes one back. Raises `UsageError` for one without a rule."""
        for topic in topics:
            given = {**self.topics[topic], **{name: value for name, value in settings.items() if value is not None}}
            self.topics[topic] = {name: value for name, value in given.items() if settings.get(name, value) is not None}
            self._topic_numbers[topic] = numbers("topic", TOPIC, self.topics[topic])
        self._compaction.wake()

    def alter_brokers(self, brokers: Sequence[int], settings: Mapping[str, str | None]) -> None:
        """Change settings of brokers, running or not; None takes one back."""
        for one in brokers:
            self.brokers[one].set(settings)
        for partition in self.partitions.values():
            self._copying.kick_all(partition)
        self._compaction.wake()

    # What befalls brokers.

    def start(self, broker: int) -> None:
        """Start a broker; it is registered a little later, and copies from then on.

        One that was killed reads its logs again: its producers are those that are left in them.
        """
        one = self.brokers[broker]
        for partition in self.held_by(broker):
            (Replica.recover if one.was_killed else Replica.reopen)(partition.replica(broker))
            partition.touch(broker)
        one.was_killed = False
        self._change(broker, is_running=True, is_paused=False)
        self._reach_later(broker, START_S * self.random.uniform(0.5, 1.5))

    def stop(self, broker: int) -> None:
        """Have a broker shut down: it hands over what it leads, and is out of the cluster at once."""
        for partition in self.held_by(broker):
            others = [one for one in partition.in_sync if one != broker and self.is_reachable(one)]
            if partition.leader_id == broker and others:
                self.lead(partition, others[0])
        self._fence(broker)
        self._change(broker, is_running=False, is_paused=False)

    def kill(self, broker: int) -> None:
        """End a broker; the others notice when its session is over."""
        self.brokers[broker].was_killed = True
        self._change(broker, is_running=False, is_paused=False)
        self._miss_later(broker)

    def pause(self, broker: int, *, is_paused: bool) -> None:
        """Freeze a broker, or let it go on."""
        self._change(broker, is_running=True, is_paused=is_paused)
        if is_paused:
            self._miss_later(broker)
        else:
            self._reach_later(broker, self._heartbeat_s(broker))

    def cut(self, broker: int) -> None:
        """Have a broker reach nobody; it goes on alone."""
        self.network.cut.add(broker)
        self.brokers[broker].changes += 1
        self._miss_later(broker)

    def heal(self, broker: int) -> None:
        """Connect it again."""
        self.network.cut.discard(broker)
        self.brokers[broker].changes += 1
        self._reach_later(broker, self._heartbeat_s(broker))

    def is_reachable(self, broker: int) -> bool:
        """Whether a broker answers."""
        return self.brokers[broker].is_active and broker not in self.network.cut

    def _change(self, broker: int, *, is_running: bool, is_paused: bool) -> None:
        one = self.brokers[broker]
        one.is_running, one.is_paused = is_running, is_paused
        one.changes += 1
        self._compaction.crash(broker)

    def _heartbeat_s(self, broker: int) -> float:
        return self.random.random() * self.brokers[broker].number_of("broker.heartbeat.interval.ms") / 1000

    def _miss_later(self, broker: int) -> None:
        self._unless_changed(broker, self.brokers[broker].number_of("broker.session.timeout.ms") / 1000, self._fence)

    def _reach_later(self, broker: int, delay_s: float) -> None:
        self._unless_changed(broker, delay_s, self._register)

    def _unless_changed(self, broker: int, delay_s: float, then: Callable[[int], None]) -> None:
        one = self.brokers[broker]
        changes = one.changes
        self.clock.after(delay_s, lambda: then(broker) if one.changes == changes else None)

    def _register(self, broker: int) -> None:
        self.brokers[broker].is_registered = True
        for partition in self.held_by(broker):
            if not partition.has_leader and broker in partition.in_sync:
                self._follow(partition, broker)
            self._copying.kick_all(partition)

    def _fence(self, broker: int) -> None:
        """Give a broker up: it leads no more, and is in no ISR that has somebody else."""
        self.brokers[broker].is_registered = False
        for partition in self.held_by(broker):
            others = [one for one in partition.in_sync if one != broker and self.brokers[one].is_registered]
            if partition.leader_id == broker:
                if others:
                    self._follow(partition, others[0])
                else:
                    partition.has_leader = False
            if others:
                partition.replication.away.add(broker)
                self._copying.advance(partition)

    def _follow(self, partition: SimPartition, leader: int) -> None:
        """Have another replica lead, as it is; what only others have is not part of the log any more."""
        partition.replication.fail_over(leader)
        partition.has_leader = True
        if self._protection is not None:
            self._protection.elect(partition, leader)
        self._copying.kick_all(partition)

    # Who leads, and who has replicas.

    def lead(self, partition: SimPartition, broker: int) -> None:
        """Have a replica lead that is in sync (``PREFERRED`` election); nothing happens where it is not."""
        if partition.leader_id in {None, broker} or broker not in partition.in_sync or not self.is_reachable(broker):
            return
        partition.replication.elect(broker)
        partition.touch(broker)
        if self._protection is not None:
            self._protection.elect(partition, broker)
        self._copying.kick_all(partition)

    def reassign(self, partition: SimPartition, brokers: Sequence[int]) -> None:
        """Give a partition these replicas: new ones begin to copy, others go."""
        replication = partition.replication
        for one in brokers:
            if one not in replication.replicas:
                replication.replicas[one] = self._replica(one)
                replication.away.add(one)
                if self._protection is not None:
                    self._protection.add(partition, one)
        partition.assigned = tuple(brokers)
        if replication.leader_id not in brokers:
            self.lead(partition, next(one for one in brokers if one in partition.in_sync))
        for one in [one for one in replication.replicas if one not in brokers]:
            replication.away.discard(one)
            del replication.replicas[one]
            if self._protection is not None:
                self._protection.remove(partition, one)
        self._copying.kick_all(partition)

    # Writing and copying.

    def append(self, partition: SimPartition, batch: Batch) -> None:
        """Append what a client or the coordinator writes to the leader."""
        leader = partition.replication.leader_id
        partition.replication.append(batch)
        self.changed(partition, leader)
        self._copying.kick_all(partition)

    def changed(self, partition: SimPartition, broker: int) -> None:
        """A replica is not what it was: there may be something to clean, or to tell."""
        partition.touch(broker)
        self._compaction.notice(partition, broker)
        self.cleaned(partition, broker)

    def cleaned(self, partition: SimPartition, broker: int) -> None:
        """A replica may have come further: where replicas compact together, the others are told."""
        if self._protection is not None:
            self._protection.notice(partition, broker)

    def joined(self, partition: SimPartition, broker: int) -> None:
        """A replica is in sync from now on."""
        if self._protection is not None:
            self._protection.joined(partition, broker)

    def held_by(self, broker: int) -> Iterator[SimPartition]:
        """Yield the partitions that a broker has a replica of."""
        return (one for one in self.partitions.values() if broker in one.replication.replicas)
