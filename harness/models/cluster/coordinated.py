"""Coordinated compaction among simulated brokers: `harness.models.world.coordination`, with delayed messages.

A replica reports its offsets to its leader when they have changed, and again as long as the leader may not have
received them; leaders distribute bounds. Messages arrive in any order, and some never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.models.world import coordination
from harness.models.world.coordination import Pair, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition
    from harness.models.world.coordination import Coordination, Message

REPORTS_S: Final = 1.0
"""After how long a replica repeats a report that its leader may not have received."""


@dataclass
class CoordinatedCompaction:
    """The protocol of every replica of a cluster with coordinated compaction."""

    _cluster: SimCluster
    _repeating: set[tuple[SimPartition, int]] = field(default_factory=set)

    def begin(self, partition: SimPartition) -> None:
        """Begin with a partition that was just created, where compaction is coordinated."""
        if self._cluster.rules.coordinated:
            partition.protocol = coordination.begin(partition.assigned, partition.replication.leader_id)

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Let a replica report offsets that are new to its leader, and the leader distribute new bounds."""
        protocol = partition.protocol
        if protocol is None or broker not in protocol.views or not self._cluster.is_reachable(broker):
            return
        own = self._own(partition, broker)
        if broker == protocol.leader:
            self._change(partition, coordination.receive_report, broker, own, ())
        elif coordination.has_new_report(protocol, broker, own):
            self._change(partition, coordination.report, broker, own)
            self._repeat_later(partition, broker)

    def elect(self, partition: SimPartition, broker: int) -> None:
        """Make another replica the leader; all replicas report to it again."""
        self._change(partition, coordination.elect, broker, self._own(partition, broker))
        for other in partition.assigned:
            self.notice(partition, other)

    def add(self, partition: SimPartition, broker: int) -> None:
        """Add a replica that has yet to catch up."""
        self._change(partition, coordination.add, broker)

    def joined(self, partition: SimPartition, broker: int) -> None:
        """Handle a replica that has joined the ISR."""
        self._change(partition, coordination.joined, broker)
        self.notice(partition, broker)

    def remove(self, partition: SimPartition, broker: int) -> None:
        """Remove a replica."""
        self._change(partition, coordination.remove, broker, ())

    def _own(self, partition: SimPartition, broker: int) -> Pair:
        """Return a replica's MCCO and MXFO."""
        return self._cluster.rules.compactor.system.own(partition.replica(broker))

    def _change(self, partition: SimPartition, change: Callable[..., Coordination], *arguments: object) -> None:
        """Apply a change to the protocol state, and send the new messages; nothing where there is no protocol."""
        if (before := partition.protocol) is None:
            return
        partition.protocol = change(before, *arguments)
        for message in sorted(partition.protocol.sent - before.sent, key=_order):
            self._send(partition, message, partition.protocol.leader)

    def _send(self, partition: SimPartition, message: Message, leader: int) -> None:
        ends = (message.broker, leader) if isinstance(message, Report) else (leader, message.broker)
        takes_s = self._cluster.network.takes_s(*ends)
        if takes_s is None:
            self._change(partition, coordination.lose, message)
            if not isinstance(message, Report):
                self._repeat_later(partition, message.broker)
            return
        self._cluster.clock.after(takes_s, partial(self._deliver, partition, message))

    def _deliver(self, partition: SimPartition, message: Message) -> None:
        protocol = partition.protocol
        if protocol is None or message not in protocol.sent:
            return
        if not self._cluster.is_reachable(protocol.leader if isinstance(message, Report) else message.broker):
            self._change(partition, coordination.lose, message)
            return
        self._change(partition, coordination.deliver, message, ())
        self.notice(partition, message.broker)

    def _repeat_later(self, partition: SimPartition, broker: int) -> None:
        if (partition, broker) not in self._repeating:
            self._repeating.add((partition, broker))
            self._cluster.clock.after(REPORTS_S, partial(self._repeat, partition, broker))

    def _repeat(self, partition: SimPartition, broker: int) -> None:
        """Repeat a report that may be lost, and the bounds that the replica may not have received."""
        self._repeating.discard((partition, broker))
        if not self._cluster.is_reachable(broker):
            return
        self._change(partition, coordination.resend_bounds, broker)
        self.notice(partition, broker)


def _order(message: Message) -> tuple[int, int, bool, Pair]:
    return message.term, message.broker, isinstance(message, Report), message.pair
