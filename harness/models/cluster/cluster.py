"""The cluster: starts and failures of its brokers, leaders, and assignments of replicas.

Sources: ``ReplicationControlManager`` and ``BrokerHeartbeatManager`` (sessions, leaders, replicas); Kafka 3.9 to 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.models.cluster.broker import Broker
from harness.models.cluster.cleaners import Cleaners
from harness.models.cluster.cleaning import KAFKA, Compactor
from harness.models.cluster.cloud import CloudStore
from harness.models.cluster.coordinated import CoordinatedCompaction
from harness.models.cluster.copying import Copying
from harness.models.cluster.network import Network
from harness.models.cluster.partition import SimPartition, begins_segment
from harness.models.cluster.settings import BROKER, TOPIC, numbers, refuse_unknown
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.version_rules import VersionRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from harness.models.clock import VirtualClock
    from harness.models.log.batch import Batch

TopicPartition = tuple[str, int]

START_S = 1.0
"""How long a broker takes to start and to be registered, give or take half of it."""


@dataclass(frozen=True)
class ClusterRules:
    """How a cluster compacts: ``compactor`` is the compaction of each broker.

    ``coordinated``: tombstones and markers are removed only below the bounds of all replicas. ``shared``: there is one
    copy, as in Cloud Topics, and replicas clean nothing. ``version``: the rules of a Kafka version.
    """

    compactor: Compactor = KAFKA
    coordinated: bool = False
    shared: bool = False
    version: VersionRules = field(default_factory=VersionRules)


@dataclass
class SimCluster:
    """A cluster, whose brokers are not started yet. All random choices come from ``random``."""

    clock: VirtualClock
    random: Random
    broker_ids: Sequence[int]
    settings: Mapping[str, str]
    rules: ClusterRules = field(default_factory=ClusterRules)
    brokers: dict[int, Broker] = field(init=False)
    network: Network = field(init=False)
    partitions: dict[TopicPartition, SimPartition] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    coordinated: CoordinatedCompaction = field(init=False)
    _copying: Copying = field(init=False)
    _compaction: Cleaners | CloudStore = field(init=False)
    _topic_numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the brokers. Raises `UsageError` for a setting that the model has no rule for."""
        refuse_unknown("broker", BROKER, self.settings)
        self.brokers = {one: Broker(one, self.settings, self.random.random()) for one in self.broker_ids}
        self.network = Network(self.random)
        self.coordinated = CoordinatedCompaction(self)
        self._copying = Copying(self)
        self._compaction = CloudStore(self) if self.rules.shared else Cleaners(self)

    # Topics.

    def create(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics. Raises `UsageError` for a setting that the model has no rule for."""
        for (topic, number), brokers in replicas.items():
            self.topics.setdefault(topic, dict(settings))
            self._topic_numbers.setdefault(topic, numbers("topic", TOPIC, settings))
            self.partitions[topic, number] = self._partition(topic, number, brokers)

    def delete(self, topic: str) -> None:
        """Delete a topic: its partitions are gone from every broker at once, running or not.

        What is under way for them, fetches and markers, still ends, and is seen by nobody.
        """
        del self.topics[topic], self._topic_numbers[topic]
        for tp in [tp for tp in self.partitions if tp[0] == topic]:
            gone = self.partitions.pop(tp)
            gone.is_deleted, gone.has_leader = True, False
            for broker in self.brokers.values():
                broker.stray.pop(gone, None)

    def delete_records(self, partition: SimPartition, before: int) -> None:
        """Raise the leader's log start offset; followers learn it with their next fetch (KIP-107)."""
        partition.replication.delete_records(before)
        self.changed(partition, partition.replication.leader_id)
        self._copying.schedule_fetches(partition)

    def _partition(self, topic: str, number: int, brokers: Sequence[int]) -> SimPartition:
        def rolls(replica: Replica, batch: Batch) -> bool:
            given = self.topic(topic)
            # A compacted topic rolls its segments in time for ``max.compaction.lag.ms`` (``LogConfig.maxSegmentMs``).
            segment_ms = min(given["segment.ms"], given["max.compaction.lag.ms"])
            return begins_segment(segment_ms, given["segment.bytes"], replica, batch)

        # Brokers that are fenced neither lead nor are in the ISR (``ReplicationControlManager.createTopic``).
        registered = [one for one in brokers if self.brokers[one].is_registered]
        leader = next(iter(registered), brokers[0])
        away = set(brokers) - {leader, *registered}
        replication = Replication({one: self._replica(one) for one in brokers}, leader, rolls, away)
        made = SimPartition(topic, number, replication, tuple(brokers), has_leader=bool(registered))
        self.coordinated.begin(made)
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
            self._copying.schedule_fetches(partition)
        self._compaction.wake()

    # Starts and failures of brokers.

    def start(self, broker: int) -> None:
        """Start a broker; it is registered a little later, and copies from then on.

        A broker that was killed recovers its logs: its producers are those that are left in the logs.
        """
        one = self.brokers[broker]
        for partition in self.partitions_of(broker):
            (Replica.recover if one.was_killed else Replica.reopen)(partition.replica(broker))
            partition.touch(broker)
        one.was_killed = False
        one.stray.clear()
        self._change(broker, is_running=True, is_paused=False)
        self._reach_later(broker, START_S * self.random.uniform(0.5, 1.5))

    def stop(self, broker: int) -> None:
        """Shut a broker down: it hands over its leaderships, and leaves the cluster at once."""
        for partition in self.partitions_of(broker):
            others = [one for one in partition.in_sync if one != broker and self.is_reachable(one)]
            if partition.leader_id == broker and others:
                self.lead(partition, others[0])
        self._fence(broker)
        self._change(broker, is_running=False, is_paused=False)

    def kill(self, broker: int) -> None:
        """Kill a broker; the others notice when its session times out."""
        self.brokers[broker].was_killed = True
        self._change(broker, is_running=False, is_paused=False)
        self._miss_later(broker)

    def pause(self, broker: int, *, is_paused: bool) -> None:
        """Pause a broker, or resume it."""
        self._change(broker, is_running=True, is_paused=is_paused)
        if is_paused:
            self._miss_later(broker)
        else:
            self._reach_later(broker, self._heartbeat_s(broker))

    def cut(self, broker: int) -> None:
        """Disconnect a broker from all others; it keeps running."""
        self.network.cut.add(broker)
        self.brokers[broker].changes += 1
        self._miss_later(broker)

    def heal(self, broker: int) -> None:
        """Connect a broker again."""
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
        for partition in self.partitions_of(broker):
            if not partition.has_leader and broker in partition.in_sync:
                self._follow(partition, broker)
            self._copying.schedule_fetches(partition)

    def _fence(self, broker: int) -> None:
        """Fence a broker: it loses its leaderships, and leaves every ISR that has another member."""
        self.brokers[broker].is_registered = False
        for partition in self.partitions_of(broker):
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
        """Make another replica the leader, without a fetch; others truncate what they have beyond its log end."""
        partition.replication.fail_over(leader)
        partition.has_leader = True
        self.coordinated.elect(partition, leader)
        self._copying.schedule_fetches(partition)

    # Leaders and assignments.

    def lead(self, partition: SimPartition, broker: int) -> None:
        """Make a replica the leader if it is in sync (``PREFERRED`` election), else do nothing."""
        if partition.leader_id in {None, broker} or broker not in partition.in_sync or not self.is_reachable(broker):
            return
        partition.replication.elect(broker)
        partition.touch(broker)
        self.coordinated.elect(partition, broker)
        self._copying.schedule_fetches(partition)

    def reassign(self, partition: SimPartition, brokers: Sequence[int]) -> None:
        """Assign these brokers to a partition: new replicas begin to copy, others are removed.

        A broker that is down still has the log of a replica that is removed (`Broker.stray`).
        """
        replication = partition.replication
        for one in brokers:
            if one not in replication.replicas:
                stray = self.brokers[one].stray
                replication.replicas[one] = stray.pop(partition) if partition in stray else self._replica(one)
                replication.away.add(one)
                self.coordinated.add(partition, one)
        partition.assigned = tuple(brokers)
        if replication.leader_id not in brokers:
            in_sync = [one for one in brokers if one in partition.in_sync]
            reachable = [one for one in in_sync if self.is_reachable(one)]
            if reachable and partition.has_leader:
                self.lead(partition, reachable[0])
            else:
                # The controller elects a broker of which it does not know yet that it is down.
                self._follow(partition, in_sync[0])
        for one in [one for one in replication.replicas if one not in brokers]:
            replication.away.discard(one)
            left = replication.replicas.pop(one)
            if not self.brokers[one].is_running:
                self.brokers[one].stray[partition] = left
            self.coordinated.remove(partition, one)
        self._copying.schedule_fetches(partition)

    # Writing and copying.

    def append(self, partition: SimPartition, batch: Batch) -> None:
        """Append a batch of a client or the transaction coordinator to the leader."""
        leader = partition.replication.leader_id
        partition.replication.append(batch)
        self.changed(partition, leader)
        self._copying.schedule_fetches(partition)

    def changed(self, partition: SimPartition, broker: int) -> None:
        """Handle a change of a replica: it may be due for cleaning, or have a new report."""
        partition.touch(broker)
        self._compaction.notice(partition, broker)
        self.coordinated.notice(partition, broker)

    def partitions_of(self, broker: int) -> Iterator[SimPartition]:
        """Yield the partitions of which a broker has a replica."""
        return (one for one in self.partitions.values() if broker in one.replication.replicas)
