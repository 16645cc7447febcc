"""Coordinated compaction among simulated brokers: `models.coordination`, with delayed messages.

A replica reports its offsets to its leader when they have changed, and again as long as the leader may not have
received them; leaders distribute bounds. Messages arrive in any order, and some never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from models import coordination
from models.coordination import Pair, Report

if TYPE_CHECKING:
    from models.cluster.cluster import SimCluster
    from models.cluster.partition import SimPartition
    from models.coordination import Coordination, Message

REPORTS_S: Final = 1.0
"""After how long a replica repeats a report that its leader may not have received."""


@dataclass
class CoordinatedCompaction:
    """The protocol of every replica of a cluster with coordinated compaction."""

    _cluster: SimCluster
    _repeating: set[tuple[str, int, int]] = field(default_factory=set)

    def begin(self, partition: SimPartition) -> None:
        """Begin with a partition that was just created."""
        partition.protocol = coordination.begin(partition.assigned, partition.replication.leader_id)

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Let a replica report offsets that are new to its leader, and the leader distribute new bounds."""
        protocol = self._protocol(partition)
        if broker not in protocol.views or not self._cluster.is_reachable(broker):
            return
        own = self._own(partition, broker)
        if broker == protocol.leader:
            self._set_state(partition, coordination.receive_report(protocol, broker, own, ()))
        elif coordination.has_new_report(protocol, broker, own):
            self._set_state(partition, coordination.report(protocol, broker, own))
            self._repeat_later(partition, broker)

    def elect(self, partition: SimPartition, broker: int) -> None:
        """Make another replica the leader; all replicas report to it again."""
        own = self._own(partition, broker)
        self._set_state(partition, coordination.elect(self._protocol(partition), broker, own))
        for other in partition.assigned:
            self.notice(partition, other)

    def add(self, partition: SimPartition, broker: int) -> None:
        """Add a replica that has yet to catch up."""
        self._set_state(partition, coordination.add(self._protocol(partition), broker))

    def joined(self, partition: SimPartition, broker: int) -> None:
        """Handle a replica that has joined the ISR."""
        self._set_state(partition, coordination.joined(self._protocol(partition), broker))
        self.notice(partition, broker)

    def remove(self, partition: SimPartition, broker: int) -> None:
        """Remove a replica."""
        self._set_state(partition, coordination.remove(self._protocol(partition), broker, ()))

    def _own(self, partition: SimPartition, broker: int) -> Pair:
        """Return a replica's MCCO and MXFO."""
        return self._cluster.rules.compactor.system.own(partition.replica(broker))

    @staticmethod
    def _protocol(partition: SimPartition) -> Coordination:
        assert partition.protocol is not None  # noqa: S101  (every partition has begun with one)
        return partition.protocol

    def _set_state(self, partition: SimPartition, after: Coordination) -> None:
        """Set the protocol state, and send its new messages."""
        before = self._protocol(partition)
        partition.protocol = after
        for message in sorted(after.sent - before.sent, key=_order):
            self._send(partition, message)

    def _send(self, partition: SimPartition, message: Message) -> None:
        leader = self._protocol(partition).leader
        ends = (message.broker, leader) if isinstance(message, Report) else (leader, message.broker)
        takes_s = self._cluster.network.takes_s(*ends)
        if takes_s is None:
            self._lose(partition, message)
            if not isinstance(message, Report):
                self._repeat_later(partition, message.broker)
            return
        self._cluster.clock.after(takes_s, partial(self._deliver, partition, message))

    def _deliver(self, partition: SimPartition, message: Message) -> None:
        protocol = self._protocol(partition)
        receiver = protocol.leader if isinstance(message, Report) else message.broker
        if message not in protocol.sent:
            return
        if not self._cluster.is_reachable(receiver):
            self._lose(partition, message)
            return
        self._set_state(partition, coordination.deliver(protocol, message, ()))
        self.notice(partition, message.broker)

    def _lose(self, partition: SimPartition, message: Message) -> None:
        partition.protocol = coordination.lose(self._protocol(partition), message)

    def _repeat_later(self, partition: SimPartition, broker: int) -> None:
        key = (partition.topic, partition.number, broker)
        if key not in self._repeating:
            self._repeating.add(key)
            self._cluster.clock.after(REPORTS_S, partial(self._repeat, partition, broker))

    def _repeat(self, partition: SimPartition, broker: int) -> None:
        """Repeat a report that may be lost, and the bounds that the replica may not have received."""
        self._repeating.discard((partition.topic, partition.number, broker))
        if not self._cluster.is_reachable(broker):
            return
        self._set_state(partition, coordination.resend_bounds(self._protocol(partition), broker))
        self.notice(partition, broker)


def _order(message: Message) -> tuple[int, int, bool, Pair]:
    return message.term, message.broker, isinstance(message, Report), message.pair
