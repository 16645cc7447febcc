"""Coordinated compaction among simulated brokers: `harness.models.world.coordination`, with delayed messages.

A replica reports its offsets to its leader when they have changed, and again as long as the leader may not have
received them; leaders distribute bounds. Messages arrive in any order, and some never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.models.world import coordination

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition
    from harness.models.log.cleaner import Bounds
    from harness.models.world.coordination import Coordination, CoordinationMessage

REPORTS_S: Final = 1.0
"""The time after which a replica repeats a report that its leader may not have received."""


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
        """Let a replica report offsets that are new to its leader, and let the leader distribute new bounds."""
        protocol = partition.protocol
        if protocol is None or broker not in protocol.views or not self._cluster.is_reachable(broker):
            return
        progress = self._progress(partition, broker)
        if broker == protocol.leader:
            self.change(partition, coordination.receive_report, broker, progress, ())
        elif protocol.has_new_report(broker, progress):
            self.change(partition, coordination.report, broker, progress)
            self._repeat_later(partition, broker)

    def elect(self, partition: SimPartition, broker: int) -> None:
        """Make another replica the leader; all replicas report to it again."""
        self.change(partition, coordination.elect, broker, self._progress(partition, broker))
        for other in partition.assigned:
            self.notice(partition, other)

    def joined(self, partition: SimPartition, broker: int) -> None:
        """Handle a replica that has joined the ISR."""
        self.change(partition, coordination.joined, broker)
        self.notice(partition, broker)

    def _progress(self, partition: SimPartition, broker: int) -> Bounds:
        """Return a replica's MCCO and MXFO."""
        return self._cluster.rules.compactor.system.progress(partition.replica(broker))

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
        if takes_s is None:
            self.change(partition, coordination.lose, message)
            if not message.is_report:
                self._repeat_later(partition, message.broker)
            return
        self._cluster.clock.after(takes_s, partial(self._deliver, partition, message))

    def _deliver(self, partition: SimPartition, message: CoordinationMessage) -> None:
        protocol = partition.protocol
        if protocol is None or message not in protocol.sent:
            return
        if not self._cluster.is_reachable(protocol.receiver(message)):
            self.change(partition, coordination.lose, message)
            return
        self.change(partition, coordination.deliver, message, ())
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
        self.change(partition, coordination.resend_bounds, broker)
        self.notice(partition, broker)
