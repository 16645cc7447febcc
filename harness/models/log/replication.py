"""The replicas of one partition: a leader that clients write to, followers that copy it, and the ISR.

Source of the rules: ``ReplicaManager``, ``Partition`` and ``ReplicaFetcherThread``. A broker that is ``away`` is out of
the ISR at once, neither copies nor cleans, and rejoins when it has caught up with the leader.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter

from harness.models.log.batch import ModelBatch
from harness.models.log.replica import Replica


@dataclass(slots=True)
class Replication:
    """The state of all replicas. ``rolls``: whether a replica begins a segment before it appends a batch.

    ``changed`` is called after every change of the leader or of the ISR. ``epoch_starts``: the log end offset of each
    later leader when its epoch began.
    """

    replicas: dict[int, Replica]
    leader_id: int
    rolls: Callable[[Replica, ModelBatch], bool]
    away: set[int] = field(default_factory=set)
    leader_epoch: int = 0
    epoch_starts: dict[int, int] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None

    @property
    def leader(self) -> Replica:
        """The replica that clients write to."""
        return self.replicas[self.leader_id]

    @property
    def in_sync(self) -> list[int]:
        """The ISR."""
        return [broker for broker in self.replicas if broker not in self.away]

    def append(self, batch: ModelBatch, *, roll: bool = False) -> None:
        """Append a batch of a client or the transaction coordinator to the leader."""
        self.leader.append(batch, roll=roll or self.rolls(self.leader, batch))
        self.advance()

    def advance(self) -> None:
        """Raise the leader's high watermark to the smallest log end offset of the ISR."""
        self.leader.advance_high_watermark(min(self.replicas[broker].log_end for broker in self.in_sync))

    def fetch(self, broker: int, most: int | None = None) -> None:
        """Copy up to ``most`` batches from the leader, or all; truncate a diverged tail first."""
        replica, leader = self.replicas[broker], self.leader
        if replica is leader:
            return
        if replica.diverged_from is not None:
            replica.truncate(replica.diverged_from)
        if replica.log_end < leader.log_start:
            # The log start may lie inside a batch (``Partition.appendRecordsToFollowerOrFutureReplica``).
            head = next(leader.from_offset(leader.log_start), None)
            replica.restart_at(min(leader.log_start, head.base_offset) if head else leader.log_start)
        batches = islice(leader.from_offset(replica.log_end), most)
        # No fetch response crosses the end of a leader's segment (``LocalLog.read``).
        for _, response in groupby(batches, lambda b: bisect_right(leader.segments, b.base_offset, key=_BASE)):
            ended = [
                (batch.producer_id, first, batch.last_offset)
                for batch in response
                if (first := replica.append(batch, roll=self.rolls(replica, batch))) is not None
            ]
            replica.correct_stable_offsets(ended)
        replica.advance_high_watermark(leader.high_watermark)
        replica.delete_before(min(leader.log_start, replica.high_watermark))
        self.advance()

    def fetch_all(self) -> None:
        """Let every replica in sync copy all batches, and learn the high watermark."""
        for _ in range(2):
            for broker in self.in_sync:
                self.fetch(broker)

    def leave(self, broker: int) -> None:
        """Take a broker out of the ISR; a leader must have been replaced first."""
        self.away.add(broker)
        self.advance()
        self.changed()

    def come_back(self, broker: int) -> None:
        """Bring a broker back and let it catch up; it joins the ISR."""
        self.fetch(broker)
        self.away.discard(broker)
        self.changed()
        self.fetch(broker)

    def elect(self, broker: int) -> None:
        """Make an in-sync replica the leader, after it has caught up."""
        self.fetch(broker)
        self._lead(broker)
        self.advance()
        self.changed()

    def fail_over(self, successor: int) -> None:
        """Make another replica the leader, without a fetch: others truncate their logs to its log end."""
        self._lead(successor)
        end = self.leader.log_end
        for replica in self.replicas.values():
            if replica.log_end > end:
                replica.diverged_from = end if replica.diverged_from is None else min(end, replica.diverged_from)
        self.changed()

    def begin_epoch(self) -> None:
        """Begin a leader epoch at the leader's log end (``Partition.makeLeader``)."""
        self.leader_epoch += 1
        self.epoch_starts[self.leader_epoch] = self.leader.log_end
        self.leader.begin_epoch(self.leader_epoch, self.leader.log_end)

    def _lead(self, broker: int) -> None:
        former = self.leader
        self.leader_id = broker
        self.begin_epoch()
        former.follow(self.leader)

    def delete_records(self, before: int) -> None:
        """Raise the leader's log start offset; followers learn the new offset with their next fetch."""
        self.leader.delete_before(min(before, self.leader.high_watermark))


_BASE = attrgetter("base_offset")
