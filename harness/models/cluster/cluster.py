"""The cluster: starts and failures of its brokers, leaders, and assignments of replicas.

Sources: ``ReplicationControlManager`` and ``BrokerHeartbeatManager`` (sessions, leaders, replicas); Kafka 3.9 to 4.4.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.kafka_api import TopicPartition
from harness.models.clock import VirtualClock
from harness.models.cluster.broker import Broker, Network
from harness.models.cluster.cleaners import Cleaners, CoordinatedCompaction
from harness.models.cluster.partition import SimPartition, begins_segment
from harness.models.cluster.settings import Settings
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.systems import KAFKA, BrokerSystem
from harness.models.log.version_rules import VersionRules
from harness.models.world.coordination import Coordination, begin

START_S = 1.0
"""The time from the start of a broker to its registration, plus or minus 50 %."""


@dataclass(frozen=True)
class ClusterRules:
    """The compaction of each broker, whether removals wait for bounds of all replicas, and a Kafka version's rules."""

    system: BrokerSystem = KAFKA
    coordinated: bool = False
    version: VersionRules = field(default_factory=VersionRules)


class SimCluster:
    """A cluster, whose brokers are not started yet. All random choices come from ``random``."""

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        brokers: Sequence[int],
        settings: Mapping[str, str],
        rules: ClusterRules | None = None,
    ) -> None:
        """Create the brokers. Raises `UsageError` for a setting that the model has no rule for."""
        self.clock, self.random, self.rules = clock, random, rules or ClusterRules()
        self.brokers = {it: Broker(it, Settings("broker", settings), random.random()) for it in brokers}
        self.network = Network(random)
        self.partitions: dict[TopicPartition, SimPartition] = {}
        self.topics: dict[str, Settings] = {}
        self.coordinated = CoordinatedCompaction(self)
        self._compaction = Cleaners(self)

    def create(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics. Raises `UsageError` for a setting that the model has no rule for."""
        for (topic, number), brokers in replicas.items():
            self.topics.setdefault(topic, Settings("topic", own=settings))
            self.partitions[topic, number] = self._partition(topic, brokers)

    def delete(self, topic: str) -> None:
        """Delete a topic from every broker, running or not; fetches and markers in flight end without an effect."""
        del self.topics[topic]
        for tp in [tp for tp in self.partitions if tp[0] == topic]:
            partition = self.partitions.pop(tp)
            partition.is_deleted, partition.has_leader = True, False
            for broker in self.brokers.values():
                broker.stray.pop(partition, None)

    def delete_records(self, partition: SimPartition, before: int) -> None:
        """Raise the leader's log start offset; followers learn it with their next fetch (KIP-107)."""
        partition.replication.delete_records(before)
        self.changed(partition, partition.replication.leader_id)
        partition.schedule_fetches()

    def _partition(self, topic: str, brokers: Sequence[int]) -> SimPartition:
        def rolls(replica: Replica, batch: ModelBatch) -> bool:
            settings = self.topics[topic].numbers
            # A compacted topic rolls its segments in time for ``max.compaction.lag.ms`` (``LogConfig.maxSegmentMs``).
            segment_ms = min(settings["segment.ms"], settings["max.compaction.lag.ms"])
            return begins_segment(segment_ms, settings["segment.bytes"], replica, batch)

        # Brokers that are fenced neither lead nor are in the ISR (``ReplicationControlManager.createTopic``).
        registered = [broker for broker in brokers if self.brokers[broker].is_registered]
        leader = next(iter(registered), brokers[0])
        away = set(brokers) - {leader, *registered}
        replication = Replication({broker: self._replica(broker) for broker in brokers}, leader, rolls, away)
        partition = SimPartition(self, topic, replication, tuple(brokers), has_leader=bool(registered))
        if self.rules.coordinated:
            partition.protocol = begin(brokers, leader)
        return partition

    def _replica(self, broker: int) -> Replica:
        return Replica(broker, stable_at_batch=self.rules.version.stable_at_batch)

    def alter(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Change settings of topics; None removes a setting. Raises `UsageError` for a setting without a rule."""
        for topic in topics:
            self.topics[topic].change(settings)
        self._compaction.notice_all(self.brokers)

    def alter_brokers(self, brokers: Sequence[int], settings: Mapping[str, str | None]) -> None:
        """Change settings of brokers, running or not; None removes a setting."""
        for broker in brokers:
            self.brokers[broker].settings.change(settings)
        for partition in self.partitions.values():
            partition.schedule_fetches()
        self._compaction.notice_all(self.brokers)

    def start(self, broker: int) -> None:
        """Start a broker, which is registered later; after a kill, it derives its producers from its logs."""
        state = self.brokers[broker]
        for partition in self.partitions_of(broker):
            (Replica.recover if state.was_killed else Replica.reopen)(partition.replica(broker))
            partition.touch(broker)
        state.was_killed = False
        state.stray.clear()
        self._change(broker, is_running=True, is_paused=False)
        self._unless_changed(broker, START_S * self.random.uniform(0.5, 1.5), self._register)

    def stop(self, broker: int) -> None:
        """Shut a broker down: it hands over its leaderships, and leaves the cluster at once."""
        for partition in self.partitions_of(broker):
            other = next((b for b in partition.in_sync if b != broker and self.is_reachable(b)), None)
            if partition.leader_id == broker and other is not None:
                self.lead(partition, other)
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
        (self._miss_later if is_paused else self._reach_soon)(broker)

    def cut(self, broker: int) -> None:
        """Disconnect a broker from all others; it keeps running."""
        self.network.cut.add(broker)
        self.brokers[broker].changes += 1
        self._miss_later(broker)

    def heal(self, broker: int) -> None:
        """Connect a broker again."""
        self.network.cut.discard(broker)
        self.brokers[broker].changes += 1
        self._reach_soon(broker)

    def is_reachable(self, broker: int) -> bool:
        """Return whether a broker answers."""
        return self.brokers[broker].is_active and broker not in self.network.cut

    def _change(self, broker: int, *, is_running: bool, is_paused: bool) -> None:
        state = self.brokers[broker]
        state.is_running, state.is_paused = is_running, is_paused
        state.changes += 1
        # Its cleaner's schedule is lost; the cleaner checks all replicas once it runs again.
        state.look_at_s = math.inf
        self._compaction.notice_all([broker])

    def _miss_later(self, broker: int) -> None:
        self._unless_changed(broker, self.brokers[broker].seconds_of("broker.session.timeout.ms"), self._fence)

    def _reach_soon(self, broker: int) -> None:
        heartbeat_s = self.random.random() * self.brokers[broker].seconds_of("broker.heartbeat.interval.ms")
        self._unless_changed(broker, heartbeat_s, self._register)

    def _unless_changed(self, broker: int, delay_s: float, then: Callable[[int], None]) -> None:
        state = self.brokers[broker]
        changes = state.changes
        self.clock.after(delay_s, lambda: then(broker) if state.changes == changes else None)

    def _register(self, broker: int) -> None:
        self.brokers[broker].is_registered = True
        for partition in self.partitions_of(broker):
            if not partition.has_leader and broker in partition.in_sync:
                self._follow(partition, broker)
            partition.schedule_fetches()

    def _fence(self, broker: int) -> None:
        """Fence a broker: it loses its leaderships, and leaves every ISR that has another member."""
        self.brokers[broker].is_registered = False
        for partition in self.partitions_of(broker):
            others = [b for b in partition.in_sync if b != broker and self.brokers[b].is_registered]
            if partition.leader_id == broker:
                partition.has_leader = False
                if others:
                    self._follow(partition, others[0])
            if others:
                partition.replication.away.add(broker)
                partition.advance()

    def _follow(self, partition: SimPartition, leader: int) -> None:
        """Make another replica the leader, without a fetch; others truncate their logs to its log end."""
        partition.replication.fail_over(leader)
        partition.has_leader = True
        self.coordinated.elect(partition, leader)
        partition.schedule_fetches()

    def lead(self, partition: SimPartition, broker: int) -> None:
        """Make a replica the leader if it is in sync (``PREFERRED`` election), else do nothing."""
        if partition.leader_id in {None, broker} or broker not in partition.in_sync or not self.is_reachable(broker):
            return
        partition.replication.elect(broker)
        partition.touch(broker)
        self.coordinated.elect(partition, broker)
        partition.schedule_fetches()

    def reassign(self, partition: SimPartition, brokers: Sequence[int]) -> None:
        """Assign these brokers to a partition; a broker that is down keeps a removed replica's log (`Broker.stray`)."""
        replication = partition.replication
        for added in [broker for broker in brokers if broker not in replication.replicas]:
            stray = self.brokers[added].stray
            replication.replicas[added] = stray.pop(partition) if partition in stray else self._replica(added)
            replication.away.add(added)
            self.coordinated.change(partition, Coordination.add, added)
        partition.assigned = tuple(brokers)
        if replication.leader_id not in brokers:
            reachable = next(filter(self.is_reachable, partition.in_sync), None)
            if reachable is not None and partition.has_leader:
                self.lead(partition, reachable)
            else:
                # The controller elects a broker that is down, as the broker's session has not timed out yet.
                self._follow(partition, partition.in_sync[0])
        for removed in [broker for broker in replication.replicas if broker not in brokers]:
            replication.away.discard(removed)
            replica = replication.replicas.pop(removed)
            if not self.brokers[removed].is_running:
                self.brokers[removed].stray[partition] = replica
            self.coordinated.change(partition, Coordination.remove, removed, ())
        partition.schedule_fetches()

    def append(self, partition: SimPartition, batch: ModelBatch) -> None:
        """Append a batch of a client or the transaction coordinator to the leader."""
        leader = partition.replication.leader_id
        partition.replication.append(batch)
        self.changed(partition, leader)
        partition.schedule_fetches()

    def changed(self, partition: SimPartition, broker: int) -> None:
        """Handle a change of a replica: it may be due for cleaning, or have a new report."""
        partition.touch(broker)
        self._compaction.notice(partition, broker)
        self.coordinated.notice(partition, broker)

    def partitions_of(self, broker: int) -> Iterator[SimPartition]:
        """Yield the partitions of which a broker has a replica."""
        return (partition for partition in self.partitions.values() if broker in partition.replication.replicas)
