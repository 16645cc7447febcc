"""One partition of a simulated cluster: its replicas, its leader, and the fetches of its followers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from harness.broker_files.segments.records import MAX_INT64
from harness.models.cluster.settings import NEVER_MS
from harness.models.log.batch import ModelBatch, size_bytes
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.world.coordination import Coordination

if TYPE_CHECKING:
    from harness.models.cluster.cluster import SimCluster


@dataclass(eq=False)
class SimPartition:
    """``assigned``: brokers of its replicas, the preferred leader first. ``has_leader``: the last leader still leads.

    ``copying``, ``learning``: followers whose next fetch is in flight, for batches or only for the high watermark.
    ``late``: followers with a scheduled check of their lag. ``versions`` count the changes of each replica.
    ``protocol``: the state of coordinated compaction, if any. ``is_deleted``: with its topic.
    """

    topic: str
    number: int
    replication: Replication
    assigned: tuple[int, ...]
    has_leader: bool = True
    copying: set[int] = field(default_factory=set)
    learning: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    versions: dict[int, int] = field(default_factory=dict)
    protocol: Coordination | None = None
    is_deleted: bool = False

    @property
    def name(self) -> str:
        """Topic and number."""
        return f"{self.topic}-{self.number}"

    @property
    def leader_id(self) -> int | None:
        """The leader's broker; None without a leader."""
        return self.replication.leader_id if self.has_leader else None

    @property
    def leader(self) -> Replica:
        """The replica of the leader, or of the last leader."""
        return self.replication.leader

    @property
    def in_sync(self) -> list[int]:
        """The ISR, in the order of assignment."""
        return [broker for broker in self.assigned if broker not in self.replication.away]

    def replica(self, broker: int) -> Replica:
        """A broker's replica."""
        return self.replication.replicas[broker]

    def touch(self, broker: int) -> None:
        """Count a change of a broker's replica."""
        self.versions[broker] = self.versions.get(broker, 0) + 1

    def is_missing_batches(self, broker: int) -> bool:
        """Return whether a follower has yet to copy batches, or to truncate."""
        replica = self.replica(broker)
        return replica.log_end < self.leader.log_end or replica.diverged_from is not None

    def is_missing_high_watermark(self, broker: int) -> bool:
        """Return whether a follower has yet to learn the high watermark, or the log start offset."""
        replica, leader = self.replica(broker), self.leader
        is_watermark_late = replica.high_watermark < min(leader.high_watermark, replica.log_end)
        return is_watermark_late or replica.log_start < min(leader.log_start, replica.high_watermark)

    def is_stored(self, batch: ModelBatch) -> bool | None:
        """Return whether all replicas in sync have a batch of a leader; None if it was lost with that leader.

        A later leader's log shows the end offsets of earlier leader epochs (KIP-101).
        """
        later = [start for epoch, start in self.leader.epochs.items() if epoch > batch.leader_epoch]
        if batch.last_offset >= min(later, default=MAX_INT64):
            return None
        return self.leader.high_watermark > batch.last_offset


def begins_segment(segment_ms: float, segment_bytes: float, replica: Replica, batch: ModelBatch) -> bool:
    """Return whether a replica begins a segment before a batch, by timestamps or size (``LogSegment.shouldRoll``)."""
    present = replica.segments[-1].batches
    if not present:
        return False
    is_old = batch.max_timestamp_ms - present[0].max_timestamp_ms > segment_ms
    return is_old or size_bytes([*present, batch]) > segment_bytes


@dataclass(frozen=True)
class Copying:
    """The fetches of followers (``ReplicaFetcherThread``, ``ReplicaManager``, ``Partition``; throttles: KIP-73)."""

    _cluster: SimCluster

    def schedule_fetches(self, partition: SimPartition) -> None:
        """Schedule a fetch of every follower that is behind."""
        for broker in partition.assigned:
            self.schedule_fetch(partition, broker)

    def schedule_fetch(self, partition: SimPartition, broker: int) -> None:
        """Schedule a fetch of a follower, unless it has everything or a fetch is in flight."""
        leader, clock = partition.leader_id, self._cluster.clock
        if leader is None or not self._can_copy(partition, broker):
            return
        follower, in_sync = self._cluster.brokers[broker], broker in partition.in_sync
        wait_s = 0.0
        if partition.is_missing_batches(broker) or not in_sync:
            self._check_lag(partition, broker)
            in_flight = partition.copying
            if not in_sync:
                wait_s = max(follower.free_at_s - clock.now_s(), 0.0)
        elif partition.is_missing_high_watermark(broker):
            in_flight = partition.learning
            # A response without batches is delayed.
            wait_s = follower.seconds_of("replica.fetch.wait.max.ms")
        else:
            return
        if broker in in_flight:
            return
        in_flight.add(broker)
        takes_s = self._cluster.network.takes_s(broker, leader)
        if takes_s is None:
            backoff_s = follower.seconds_of("replica.fetch.backoff.ms")
            clock.after(backoff_s, partial(self._copy_again, partition, broker, in_flight))
        else:
            clock.after(wait_s + takes_s, partial(self._copy, partition, broker, in_flight))

    def _copy_again(self, partition: SimPartition, broker: int, in_flight: set[int]) -> None:
        in_flight.discard(broker)
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

    def _copy(self, partition: SimPartition, broker: int, in_flight: set[int]) -> None:
        in_flight.discard(broker)
        if not self._can_copy(partition, broker):
            return
        settings = self._cluster.brokers[broker].number_of
        # A replica out of sync is throttled (KIP-73).
        rate = min(settings("leader.replication.throttled.rate"), settings("follower.replication.throttled.rate"))
        is_throttled = rate < NEVER_MS and broker not in partition.in_sync
        previous, mine = partition.leader.high_watermark, partition.replica(broker)
        before = mine.log_end
        partition.replication.fetch(broker, 1 if is_throttled else None)
        if is_throttled and mine.log_end > before:
            copied = mine.segments[-1].batches[-1:]
            follower = self._cluster.brokers[broker]
            follower.free_at_s = max(follower.free_at_s, self._cluster.clock.now_s()) + size_bytes(copied) / rate
        self._join(partition, broker)
        self._cluster.changed(partition, broker)
        self.advance(partition, previous)
        self.schedule_fetch(partition, broker)

    def _join(self, partition: SimPartition, broker: int) -> None:
        """Add a follower to the ISR that has caught up with the high watermark (``Partition.maybeExpandIsr``)."""
        replication = partition.replication
        if broker in replication.away and partition.replica(broker).log_end >= partition.leader.high_watermark:
            replication.away.discard(broker)
            self._cluster.coordinated.joined(partition, broker)

    def advance(self, partition: SimPartition, previous: int | None = None) -> None:
        """Advance the leader's high watermark; ``previous``: its value before an earlier change, if any."""
        before = partition.leader.high_watermark if previous is None else previous
        partition.replication.advance()
        if partition.leader.high_watermark != before:
            self._cluster.changed(partition, partition.replication.leader_id)
            self.schedule_fetches(partition)

    def _check_lag(self, partition: SimPartition, broker: int) -> None:
        if broker in partition.late or broker not in partition.in_sync:
            return
        partition.late.add(broker)
        lag_s = self._cluster.brokers[broker].seconds_of("replica.lag.time.max.ms")
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
