"""One partition of a simulated cluster: its replicas, its leader, and the fetches in flight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.broker_files.segments.records import MAX_INT64
from harness.models.log.batch import size_bytes

if TYPE_CHECKING:
    from harness.models.log.batch import Batch
    from harness.models.log.replica import Replica
    from harness.models.log.replication import Replication
    from harness.models.world.coordination import Coordination


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

    def lacks_batches(self, broker: int) -> bool:
        """Whether a follower has yet to copy batches, or to truncate."""
        mine = self.replica(broker)
        return mine.log_end < self.leader.log_end or mine.diverged_from is not None

    def lacks_high_watermark(self, broker: int) -> bool:
        """Whether a follower has yet to learn the high watermark, or the log start offset."""
        mine = self.replica(broker)
        return mine.high_watermark < min(self.leader.high_watermark, mine.log_end) or mine.log_start < min(
            self.leader.log_start, mine.high_watermark
        )

    def is_stored(self, batch: Batch) -> bool | None:
        """Whether all replicas in sync have a batch that a leader appended; None if it was lost with that leader.

        A later leader's log shows the end offsets of earlier leader epochs (KIP-101).
        """
        later = [start for epoch, start in self.leader.epochs.items() if epoch > batch.leader_epoch]
        if batch.last_offset >= min(later, default=MAX_INT64):
            return None
        return self.leader.high_watermark > batch.last_offset


def begins_segment(segment_ms: float, segment_bytes: float, replica: Replica, batch: Batch) -> bool:
    """Whether a replica begins a segment before it appends a batch (``LogSegment.shouldRoll``).

    Time is by batches' timestamps: from the segment's first batch to this batch.
    """
    present = replica.segments[-1].batches
    if not present:
        return False
    is_old = batch.max_timestamp_ms - present[0].max_timestamp_ms > segment_ms
    return is_old or size_bytes([*present, batch]) > segment_bytes
