"""How followers copy: the times of their fetches, the ISR, and the high watermark.

Sources: ``ReplicaFetcherThread``, ``ReplicaManager`` and ``Partition`` (ISR, high watermark), KIP-73 (throttles).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.models.cluster.settings import NEVER_MS
from harness.models.log.batch import size_bytes

if TYPE_CHECKING:
    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition


@dataclass(frozen=True)
class Copying:
    """The fetches of every follower of a cluster."""

    _cluster: SimCluster

    def schedule_fetches(self, partition: SimPartition) -> None:
        """Schedule a fetch of every follower that lacks batches or the high watermark."""
        for broker in partition.assigned:
            self.schedule_fetch(partition, broker)

    def schedule_fetch(self, partition: SimPartition, broker: int) -> None:
        """Schedule a fetch of a follower, unless it lacks nothing or a fetch is in flight."""
        leader = partition.leader_id
        if leader is None or not self._can_copy(partition, broker):
            return
        one, in_sync = self._cluster.brokers[broker], broker in partition.in_sync
        wait_s = 0.0
        if partition.lacks_batches(broker) or not in_sync:
            self._check_lag(partition, broker)
            under_way = partition.copying
            if not in_sync:
                wait_s = max(one.free_at_s - self._cluster.clock.now_s(), 0.0)
        elif partition.lacks_high_watermark(broker):
            under_way = partition.learning
            # A response without batches is delayed.
            wait_s = one.number_of("replica.fetch.wait.max.ms") / 1000
        else:
            return
        if broker in under_way:
            return
        under_way.add(broker)
        takes_s = self._cluster.network.takes_s(broker, leader)
        if takes_s is None:
            backoff_s = one.number_of("replica.fetch.backoff.ms") / 1000
            self._cluster.clock.after(backoff_s, partial(self._copy_again, partition, broker, under_way))
        else:
            self._cluster.clock.after(wait_s + takes_s, partial(self._copy, partition, broker, under_way))

    def _copy_again(self, partition: SimPartition, broker: int, under_way: set[int]) -> None:
        """Repeat a follower's lost fetch."""
        under_way.discard(broker)
        self.schedule_fetch(partition, broker)

    def _can_copy(self, partition: SimPartition, broker: int) -> bool:
        leader = partition.leader_id
        return (
            leader is not None
            and broker != leader
            and broker in partition.replication.replicas
            and self._cluster.brokers[broker].is_registered
            and self._cluster.is_reachable(broker)
            and self._cluster.is_reachable(leader)
        )

    def _copy(self, partition: SimPartition, broker: int, under_way: set[int]) -> None:
        """Complete a follower's fetch."""
        under_way.discard(broker)
        if not self._can_copy(partition, broker):
            return
        rate = self._rate(broker)
        is_throttled = rate < NEVER_MS and broker not in partition.in_sync
        previous, mine = partition.leader.high_watermark, partition.replica(broker)
        before = mine.log_end
        partition.replication.fetch(broker, 1 if is_throttled else None)
        if is_throttled and mine.log_end > before:
            copied = mine.segments[-1].batches[-1:]
            one = self._cluster.brokers[broker]
            one.free_at_s = max(one.free_at_s, self._cluster.clock.now_s()) + size_bytes(copied) / rate
        self._join(partition, broker)
        self._cluster.changed(partition, broker)
        self.advance(partition, previous)
        self.schedule_fetch(partition, broker)

    def _rate(self, broker: int) -> float:
        """Return how many bytes a second a replica out of sync may copy (KIP-73)."""
        one = self._cluster.brokers[broker]
        return min(one.number_of(f"{side}.replication.throttled.rate") for side in ("leader", "follower"))

    def _join(self, partition: SimPartition, broker: int) -> None:
        """Add a follower to the ISR that has caught up with the high watermark (``Partition.maybeExpandIsr``)."""
        replication = partition.replication
        if broker in replication.away and partition.replica(broker).log_end >= partition.leader.high_watermark:
            replication.away.discard(broker)
            self._cluster.coordinated.joined(partition, broker)

    def advance(self, partition: SimPartition, previous: int | None = None) -> None:
        """Advance the leader's high watermark; followers learn it with their next fetch.

        ``previous``: the high watermark before an earlier change, if this call follows one.
        """
        before = partition.leader.high_watermark if previous is None else previous
        partition.replication.advance()
        if partition.leader.high_watermark != before:
            self._cluster.changed(partition, partition.replication.leader_id)
            self.schedule_fetches(partition)

    def _check_lag(self, partition: SimPartition, broker: int) -> None:
        """Check after the maximum lag whether a follower has reached the present log end."""
        if broker in partition.late or broker not in partition.in_sync:
            return
        partition.late.add(broker)
        lag_s = self._cluster.brokers[broker].number_of("replica.lag.time.max.ms") / 1000
        self._cluster.clock.after(lag_s, partial(self._shrink, partition, broker, partition.leader.log_end))

    def _shrink(self, partition: SimPartition, broker: int, end: int) -> None:
        partition.late.discard(broker)
        replicas = partition.replication.replicas
        if partition.leader_id in {None, broker} or broker not in replicas or replicas[broker].log_end >= end:
            return
        if broker in partition.in_sync:
            partition.replication.away.add(broker)
            self.advance(partition)
            self.schedule_fetch(partition, broker)
