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
    """A partition. ``assigned``: brokers of its replicas, the preferred leader first.

    ``has_leader``: the last leader still leads. ``copying``, ``learning``: followers whose next fetch is in flight, for
    batches or only for the high watermark. ``late``: followers with a scheduled check of their lag. ``versions`` count
    the changes of each replica. ``protocol``: the state of coordinated compaction, if any. ``is_deleted``: with its
    topic. Source of the rules of fetches: ``ReplicaFetcherThread``, ``ReplicaManager``, ``Partition``.
    """

    _cluster: SimCluster
    topic: str
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

    def is_stored(self, batch: ModelBatch) -> bool | None:
        """Return whether all replicas in sync have a batch of a leader; None if it was lost with that leader."""
        # Deletions of records raise the starts of epochs in the leader's log.
        later = [start for epoch, start in self.replication.epoch_starts.items() if epoch > batch.leader_epoch]
        if batch.last_offset >= min(later, default=MAX_INT64):
            return None
        return self.leader.high_watermark > batch.last_offset

    def schedule_fetches(self) -> None:
        """Schedule a fetch of every follower that is behind."""
        for broker in self.assigned:
            self._schedule_fetch(broker)

    def _schedule_fetch(self, broker: int) -> None:
        """Schedule a fetch of a follower, unless it has everything or a fetch is in flight."""
        source, clock = self._source(broker), self._cluster.clock
        if source is None:
            return
        follower, in_sync = self._cluster.brokers[broker], broker in self.in_sync
        replica, leader, wait_s = self.replica(broker), self.leader, 0.0
        if replica.log_end < leader.log_end or replica.diverged_from is not None or not in_sync:
            self._check_lag(broker)
            in_flight = self.copying
            if not in_sync:
                wait_s = max(follower.free_at_s - clock.now_s(), 0.0)
        elif replica.high_watermark < min(leader.high_watermark, replica.log_end) or (
            replica.log_start < min(leader.log_start, replica.high_watermark)
        ):
            in_flight = self.learning
            # A response without batches is delayed.
            wait_s = follower.seconds_of("replica.fetch.wait.max.ms")
        else:
            return
        if broker in in_flight:
            return
        in_flight.add(broker)
        takes_s = self._cluster.network.takes_s(broker, source)
        delay_s = follower.seconds_of("replica.fetch.backoff.ms") if takes_s is None else wait_s + takes_s
        clock.after(delay_s, partial(self._copy, broker, in_flight, is_lost=takes_s is None))

    def _source(self, broker: int) -> int | None:
        """Return the leader that a follower can copy from now; None if there is none."""
        leader, brokers = self.leader_id, self._cluster.brokers
        is_follower = broker != leader and broker in self.replication.replicas and brokers[broker].is_registered
        can_copy = leader is not None and is_follower and all(map(self._cluster.is_reachable, (broker, leader)))
        return leader if can_copy else None

    def _copy(self, broker: int, in_flight: set[int], *, is_lost: bool) -> None:
        in_flight.discard(broker)
        if is_lost:
            self._schedule_fetch(broker)
        if is_lost or self._source(broker) is None:
            return
        follower, away = self._cluster.brokers[broker], self.replication.away
        # A replica out of sync is throttled (KIP-73).
        rate = min(follower.settings.numbers[f"{side}.replication.throttled.rate"] for side in ("leader", "follower"))
        is_throttled = rate < NEVER_MS and broker not in self.in_sync
        previous, mine = self.leader.high_watermark, self.replica(broker)
        before = mine.log_end
        self.replication.fetch(broker, 1 if is_throttled else None)
        if is_throttled and mine.log_end > before:
            copied = mine.segments[-1].batches[-1:]
            follower.free_at_s = max(follower.free_at_s, self._cluster.clock.now_s()) + size_bytes(copied) / rate
        # A follower that has caught up with the high watermark joins (``Partition.maybeExpandIsr``).
        if broker in away and mine.log_end >= self.leader.high_watermark:
            away.discard(broker)
            self._cluster.coordinated.joined(self, broker)
        self._cluster.changed(self, broker)
        self.advance(previous)
        self._schedule_fetch(broker)

    def advance(self, previous: int | None = None) -> None:
        """Advance the leader's high watermark; ``previous``: its value before an earlier change, if any."""
        before = self.leader.high_watermark if previous is None else previous
        self.replication.advance()
        if self.leader.high_watermark != before:
            self._cluster.changed(self, self.replication.leader_id)
            self.schedule_fetches()

    def _check_lag(self, broker: int) -> None:
        if broker not in self.late and broker in self.in_sync:
            self.late.add(broker)
            lag_s = self._cluster.brokers[broker].seconds_of("replica.lag.time.max.ms")
            self._cluster.clock.after(lag_s, partial(self._shrink, broker, self.leader.log_end))

    def _shrink(self, broker: int, end: int) -> None:
        self.late.discard(broker)
        replicas = self.replication.replicas
        if self.leader_id in {None, broker} or broker not in replicas or replicas[broker].log_end >= end:
            return
        if broker in self.in_sync:
            self.replication.away.add(broker)
            self.advance()
            self._schedule_fetch(broker)


def begins_segment(segment_ms: float, segment_bytes: float, replica: Replica, batch: ModelBatch) -> bool:
    """Return whether a replica begins a segment before a batch, by timestamps or size (``LogSegment.shouldRoll``)."""
    present = replica.segments[-1].batches
    if not present:
        return False
    is_old = batch.max_timestamp_ms - present[0].max_timestamp_ms > segment_ms
    return is_old or size_bytes([*present, batch]) > segment_bytes
