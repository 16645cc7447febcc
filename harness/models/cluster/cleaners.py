"""Each broker's cleaner, which checks replicas that have changed, and coordinated compaction among the brokers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.models.cluster.broker import Broker
from harness.models.cluster.partition import SimPartition
from harness.models.log.cleaner import UNBOUNDED, Bounds, Cleaning
from harness.models.world.coordination import Coordination, CoordinationMessage

if TYPE_CHECKING:
    from harness.models.cluster.cluster import SimCluster

REPORTS_S: Final = 1.0
"""The time after which a replica repeats a report that its leader may not have received."""


@dataclass(frozen=True)
class Cleaners:
    """Compaction by brokers, each of its replicas, which it checks once its backoff is over."""

    _cluster: SimCluster

    def notice(self, partition: SimPartition, number: int, delay_s: float = 0.0) -> None:
        """Schedule a check of a replica that has changed, or that may be due after a delay."""
        broker, clock = self._cluster.brokers[number], self._cluster.clock
        broker.changed[partition] = None
        at_s = broker.next_look_s(clock.now_s() + delay_s)
        if broker.is_active and at_s < broker.look_at_s:
            broker.look_at_s = at_s
            clock.after(at_s - clock.now_s(), partial(self._look, broker, at_s))

    def notice_all(self, brokers: Iterable[int]) -> None:
        """Schedule a check of every replica of these brokers."""
        for broker in brokers:
            for partition in self._cluster.partitions_of(broker):
                self.notice(partition, broker)

    def _look(self, broker: Broker, at_s: float) -> None:
        if broker.look_at_s != at_s:
            return
        broker.look_at_s = math.inf
        changed, broker.changed = list(broker.changed), {}
        for partition in changed:
            if not partition.is_deleted and broker.number in partition.replication.replicas:
                self._check(broker, partition)

    def _check(self, broker: Broker, partition: SimPartition) -> None:
        number, system = broker.number, self._cluster.rules.system
        now_ms = self._cluster.clock.time_ms() + broker.skew_ms
        replica, topic = partition.replica(number), self._cluster.topics[partition.topic].numbers
        cleaning = Cleaning(
            delete_retention_ms=int(topic["delete.retention.ms"]),
            producer_expiration_ms=int(broker.settings.numbers["producer.id.expiration.ms"]),
            min_compaction_lag_ms=int(topic["min.compaction.lag.ms"]),
            last_of_pass_stays=self._cluster.rules.version.last_of_pass_stays,
        )
        if system.is_due(replica, cleaning, topic, now_ms):
            bounds = UNBOUNDED if partition.protocol is None else partition.protocol.bounds(number)
            if system.clean(replica, cleaning, now_ms, bounds):
                partition.touch(number)
            self._cluster.coordinated.notice(partition, number)
        due_ms = system.due_later_ms(replica, topic, now_ms)
        if due_ms is not None:
            self.notice(partition, number, (due_ms - now_ms) / 1000)


@dataclass
class CoordinatedCompaction:
    """The protocol of every replica (`harness.models.world.coordination`), with delayed messages.

    A replica reports its offsets to its leader when they have changed, and again as long as the leader may not have
    received them; leaders distribute bounds. Messages arrive in any order, and some never.
    """

    _cluster: SimCluster
    _repeating: set[tuple[SimPartition, int]] = field(default_factory=set)

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Let a replica report offsets that are new to its leader, and let the leader distribute new bounds."""
        protocol = partition.protocol
        if protocol is None or broker not in protocol.views or not self._cluster.is_reachable(broker):
            return
        progress = self._progress(partition, broker)
        if broker == protocol.leader:
            self.change(partition, Coordination.receive_report, broker, progress, ())
        elif protocol.has_new_report(broker, progress):
            self.change(partition, Coordination.report, broker, progress)
            self._repeat_later(partition, broker)

    def elect(self, partition: SimPartition, broker: int) -> None:
        """Make another replica the leader; all replicas report to it again."""
        self.change(partition, Coordination.elect, broker, self._progress(partition, broker))
        for other in partition.assigned:
            self.notice(partition, other)

    def joined(self, partition: SimPartition, broker: int) -> None:
        """Handle a replica that has joined the ISR."""
        self.change(partition, Coordination.joined, broker)
        self.notice(partition, broker)

    def _progress(self, partition: SimPartition, broker: int) -> Bounds:
        return self._cluster.rules.system.progress(partition.replica(broker))

    def change(self, partition: SimPartition, change: Callable[..., Coordination], *arguments: object) -> None:
        """Apply a change to the protocol state, if any, and send the new messages."""
        if (before := partition.protocol) is None:
            return
        partition.protocol = change(before, *arguments)
        for message in sorted(partition.protocol.sent - before.sent, key=lambda m: (m.term, m.broker, m)):
            self._send(partition, message, partition.protocol)

    def _send(self, partition: SimPartition, message: CoordinationMessage, protocol: Coordination) -> None:
        ends = message.broker, protocol.leader
        takes_s = self._cluster.network.takes_s(*(ends if message.is_report else ends[::-1]))
        if takes_s is not None:
            self._cluster.clock.after(takes_s, partial(self._deliver, partition, message))
            return
        self.change(partition, Coordination.lose, message)
        if not message.is_report:
            self._repeat_later(partition, message.broker)

    def _deliver(self, partition: SimPartition, message: CoordinationMessage) -> None:
        protocol = partition.protocol
        if protocol is None or message not in protocol.sent:
            return
        if not self._cluster.is_reachable(protocol.receiver(message)):
            self.change(partition, Coordination.lose, message)
            return
        self.change(partition, Coordination.deliver, message, ())
        self.notice(partition, message.broker)

    def _repeat_later(self, partition: SimPartition, broker: int) -> None:
        if (partition, broker) not in self._repeating:
            self._repeating.add((partition, broker))
            self._cluster.clock.after(REPORTS_S, partial(self._repeat, partition, broker))

    def _repeat(self, partition: SimPartition, broker: int) -> None:
        self._repeating.discard((partition, broker))
        if self._cluster.is_reachable(broker):
            self.change(partition, Coordination.resend_bounds, broker)
            self.notice(partition, broker)
