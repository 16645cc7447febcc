"""The cluster: what befalls its brokers, what they copy from each other, and when they clean.

Sources: ``ReplicaManager``, ``Partition`` and ``ReplicaFetcherThread`` (copying, the ISR),
``ReplicationControlManager`` and ``BrokerHeartbeatManager`` (sessions, leaders), ``LogCleaner`` (passes); Kafka 3.9 to
4.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from models.cleaner import UNBOUNDED
from models.cluster.broker import Broker
from models.cluster.cleaning import KAFKA, Compactor, cleaning_of
from models.cluster.cloud import CloudStore
from models.cluster.network import Network
from models.cluster.partition import SimPartition, Sizes, begins_segment
from models.cluster.protection import Protection
from models.cluster.settings import BROKER, NEVER_MS, TOPIC, numbers, refuse_unknown
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


@dataclass(frozen=True)
class Rules:
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
    numbers: Sequence[int]
    settings: Mapping[str, str]
    rules: Rules = field(default_factory=Rules)
    brokers: dict[int, Broker] = field(init=False)
    network: Network = field(init=False)
    partitions: dict[TopicPartition, SimPartition] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    _protection: Protection | None = field(init=False, default=None)
    _store: CloudStore | None = field(init=False, default=None)
    _topic_numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the brokers. Raises `UsageError` for a setting that the model has no rule for."""
        refuse_unknown("broker", BROKER, self.settings)
        self.brokers = {one: Broker(one, self.settings, self.random.random()) for one in self.numbers}
        self.network = Network(self.random)
        if self.rules.coordinated:
            self._protection = Protection(self, self.rules.reports_s)
        if self.rules.shared:
            self._store = CloudStore(self)

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
        if self._store is not None:
            self._store.begin(made)
        return made

    def _replica(self, broker: int) -> Replica:
        return Replica(broker, stable_at_batch=self.rules.version.stable_at_batch)

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return what a broker serves of a partition."""
        return partition.replica(broker) if self._store is None else self._store.served(partition, broker)

    def topic(self, name: str) -> dict[str, float]:
        """Return a topic's numbers."""
        return self._topic_numbers[name]

    def alter(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Change settings of topics; None takes one back. Raises `UsageError` for one without a rule."""
        for topic in topics:
            given = {**self.topics[topic], **{name: value for name, value in settings.items() if value is not None}}
            self.topics[topic] = {name: value for name, value in given.items() if settings.get(name, value) is not None}
            self._topic_numbers[topic] = numbers("topic", TOPIC, self.topics[topic])
        self._look_everywhere()

    def alter_brokers(self, brokers: Sequence[int], settings: Mapping[str, str | None]) -> None:
        """Change settings of brokers, running or not; None takes one back."""
        for one in brokers:
            self.brokers[one].set(settings)
        for partition in self.partitions.values():
            self._kick_all(partition)
        self._look_everywhere()

    # What befalls brokers.

    def start(self, broker: int) -> None:
        """Start a broker; it is registered a little later, and copies from then on.

        One that was killed reads its logs again: its producers are those that are left in them.
        """
        if self.brokers[broker].was_killed:
            for partition in self._held_by(broker):
                partition.replica(broker).recover()
                partition.touch(broker)
        self.brokers[broker].was_killed = False
        self._change(broker, is_running=True, is_paused=False)
        self._reach_later(broker, START_S * self.random.uniform(0.5, 1.5))

    def stop(self, broker: int) -> None:
        """Have a broker shut down: it hands over what it leads, and is out of the cluster at once."""
        for partition in self._held_by(broker):
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
        one.is_running, one.is_paused, one.look_at_s = is_running, is_paused, math.inf
        one.changes += 1
        if self._store is not None:
            self._store.crash(broker)
        self._look_at_all(broker)

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
        for partition in self._held_by(broker):
            if not partition.has_leader and broker in partition.in_sync:
                self._follow(partition, broker)
            self._kick_all(partition)

    def _fence(self, broker: int) -> None:
        """Give a broker up: it leads no more, and is in no ISR that has somebody else."""
        self.brokers[broker].is_registered = False
        for partition in self._held_by(broker):
            others = [one for one in partition.in_sync if one != broker and self.brokers[one].is_registered]
            if partition.leader_id == broker:
                if others:
                    self._follow(partition, others[0])
                else:
                    partition.has_leader = False
            if others:
                partition.replication.away.add(broker)
                self._advance(partition)

    def _follow(self, partition: SimPartition, leader: int) -> None:
        """Have another replica lead, as it is; what only others have is not part of the log any more."""
        partition.replication.fail_over(leader)
        partition.has_leader = True
        if self._protection is not None:
            self._protection.elect(partition, leader)
        self._kick_all(partition)

    # Who leads, and who has replicas.

    def lead(self, partition: SimPartition, broker: int) -> None:
        """Have a replica lead that is in sync (``PREFERRED`` election); nothing happens where it is not."""
        if partition.leader_id in {None, broker} or broker not in partition.in_sync or not self.is_reachable(broker):
            return
        partition.replication.elect(broker)
        partition.touch(broker)
        if self._protection is not None:
            self._protection.elect(partition, broker)
        self._kick_all(partition)

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
        self._kick_all(partition)

    # Writing and copying.

    def append(self, partition: SimPartition, batch: Batch) -> None:
        """Append what a client or the coordinator writes to the leader."""
        leader = partition.replication.leader_id
        partition.replication.append(batch)
        self._changed(partition, leader)
        self._kick_all(partition)

    def _kick_all(self, partition: SimPartition) -> None:
        for broker in partition.assigned:
            self._kick(partition, broker)

    def _kick(self, partition: SimPartition, broker: int) -> None:
        """Have a follower fetch what it lacks, unless it does so already."""
        leader = partition.leader_id
        if leader is None or not self._can_copy(partition, broker):
            return
        one, in_sync = self.brokers[broker], broker in partition.in_sync
        wait_s = 0.0
        if partition.lacks_batches(broker) or not in_sync:
            self._look_for_lag(partition, broker)
            under_way = partition.copying
            if not in_sync:
                wait_s = max(one.free_at_s - self.clock.now_s(), 0.0)
        elif partition.lacks_high_watermark(broker):
            under_way = partition.learning
            # An answer without batches comes late.
            wait_s = one.number_of("replica.fetch.wait.max.ms") / 1000
        else:
            return
        if broker in under_way:
            return
        under_way.add(broker)
        takes_s = self.network.takes_s(broker, leader)
        if takes_s is None:
            backoff_s = one.number_of("replica.fetch.backoff.ms") / 1000
            self.clock.after(backoff_s, partial(self._copy_again, partition, broker, under_way))
        else:
            self.clock.after(wait_s + takes_s, partial(self._copy, partition, broker, under_way))

    def _copy_again(self, partition: SimPartition, broker: int, under_way: set[int]) -> None:
        """A follower's fetch was lost."""
        under_way.discard(broker)
        self._kick(partition, broker)

    def _can_copy(self, partition: SimPartition, broker: int) -> bool:
        leader = partition.leader_id
        return (
            leader is not None
            and broker != leader
            and broker in partition.replication.replicas
            and self.brokers[broker].is_registered
            and self.is_reachable(broker)
            and self.is_reachable(leader)
        )

    def _copy(self, partition: SimPartition, broker: int, under_way: set[int]) -> None:
        """A follower's fetch is answered."""
        under_way.discard(broker)
        if not self._can_copy(partition, broker):
            return
        rate = self._rate(broker)
        is_throttled = rate < NEVER_MS and broker not in partition.in_sync
        known_to, mine = partition.leader.high_watermark, partition.replica(broker)
        before = mine.log_end
        partition.replication.fetch(broker, 1 if is_throttled else None)
        if is_throttled and mine.log_end > before:
            copied = mine.segments[-1].batches[-1:]
            one = self.brokers[broker]
            one.free_at_s = max(one.free_at_s, self.clock.now_s()) + self.sizes.of(copied) / rate
        self._join(partition, broker)
        self._changed(partition, broker)
        self._advance(partition, known_to)
        self._kick(partition, broker)

    def _rate(self, broker: int) -> float:
        """Bytes a second that a replica out of sync may copy (KIP-73)."""
        one = self.brokers[broker]
        return min(one.number_of(f"{side}.replication.throttled.rate") for side in ("leader", "follower"))

    def _join(self, partition: SimPartition, broker: int) -> None:
        """Count a follower as in sync that has caught up with the high watermark (``Partition.maybeExpandIsr``)."""
        replication = partition.replication
        if broker in replication.away and partition.replica(broker).log_end >= partition.leader.high_watermark:
            replication.away.discard(broker)
            if self._protection is not None:
                self._protection.joined(partition, broker)

    def _advance(self, partition: SimPartition, known_to: int | None = None) -> None:
        """Have the leader know how far everybody in sync is; followers learn it by their next fetch.

        ``known_to``: its high watermark before anything happened, where that is over.
        """
        before = partition.leader.high_watermark if known_to is None else known_to
        partition.replication.advance()
        if partition.leader.high_watermark != before:
            self._changed(partition, partition.replication.leader_id)
            self._kick_all(partition)

    def _look_for_lag(self, partition: SimPartition, broker: int) -> None:
        """Look whether a follower has what there is now, once it could have lagged for too long."""
        if broker in partition.late or broker not in partition.in_sync:
            return
        partition.late.add(broker)
        lag_s = self.brokers[broker].number_of("replica.lag.time.max.ms") / 1000
        self.clock.after(lag_s, partial(self._shrink, partition, broker, partition.leader.log_end))

    def _shrink(self, partition: SimPartition, broker: int, end: int) -> None:
        partition.late.discard(broker)
        replicas = partition.replication.replicas
        if partition.leader_id in {None, broker} or broker not in replicas or replicas[broker].log_end >= end:
            return
        if broker in partition.in_sync:
            partition.replication.away.add(broker)
            self._advance(partition)
            self._kick(partition, broker)

    def _changed(self, partition: SimPartition, broker: int) -> None:
        """A replica is not what it was: there may be something to clean, or to tell."""
        partition.touch(broker)
        self._look_later(partition, broker)
        if self._protection is not None:
            self._protection.notice(partition, broker)
        if self._store is not None and broker == partition.leader_id:
            self._store.notice(partition)

    def _held_by(self, broker: int) -> Iterator[SimPartition]:
        return (one for one in self.partitions.values() if broker in one.replication.replicas)

    # Cleaning.

    def _look_everywhere(self) -> None:
        for broker in self.brokers:
            self._look_at_all(broker)
        if self._store is not None:
            self._store.wake()

    def _look_at_all(self, broker: int) -> None:
        for partition in self._held_by(broker):
            self._look_later(partition, broker)

    def _look_later(self, partition: SimPartition, broker: int, delay_s: float = 0.0) -> None:
        """Have a broker's cleaner look at a replica when it is the time for that."""
        one = self.brokers[broker]
        if self.rules.shared:
            return
        one.changed[partition] = None
        at_s = one.next_look_s(self.clock.now_s() + delay_s)
        if one.is_active and at_s < one.look_at_s:
            one.look_at_s = at_s
            self.clock.after(at_s - self.clock.now_s(), partial(self._look, one, at_s))

    def _look(self, broker: Broker, at_s: float) -> None:
        """Clean what is due on a broker, and come back when time alone may make more due."""
        if broker.look_at_s != at_s:
            return
        broker.look_at_s = math.inf
        now_ms = self.clock.time_ms() + broker.skew_ms
        changed, broker.changed = list(broker.changed), {}
        compactor = self.rules.compactor
        for partition in changed:
            if broker.number not in partition.replication.replicas:
                continue
            replica, topic = partition.replica(broker.number), self.topic(partition.topic)
            cleaning = cleaning_of(topic, broker.number_of("producer.id.expiration.ms"), self.rules.version)
            if compactor.is_due(replica, cleaning, topic, now_ms, self.sizes):
                bounds = UNBOUNDED if partition.protocol is None else partition.protocol.bounds(broker.number)
                if compactor.clean(replica, cleaning, now_ms, bounds):
                    partition.touch(broker.number)
                if self._protection is not None:
                    self._protection.notice(partition, broker.number)
            due_ms = compactor.due_later_ms(replica, topic, now_ms)
            if due_ms is not None:
                self._look_later(partition, broker.number, (due_ms - now_ms) / 1000)
