"""The transaction coordinator: producer ids and epochs, and the markers that end a transaction in each partition.

Sources: ``TransactionCoordinator``, ``TransactionMarkerChannelManager`` and KIP-890 (transactions of version 2 raise
the epoch at each end). The end of a transaction is acknowledged before its markers are written; the next transaction of
the same producer begins once all markers are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.broker_files.segments.records import ABORT, marker_record
from harness.models.log.batch import Batch

if TYPE_CHECKING:
    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition

FIRST_PRODUCER_ID: Final = 1000
RETRY_S: Final = 0.1


@dataclass(eq=False)
class Transactional:
    """The state of a transactional id. ``ending``: partitions whose marker is not written yet.

    ``written``: markers that are written, but may not be on all replicas in sync yet.
    """

    producer_id: int
    raises_epoch: bool
    epoch: int = 0
    partitions: list[SimPartition] = field(default_factory=list)
    ending: list[SimPartition] = field(default_factory=list)
    written: list[tuple[SimPartition, Batch]] = field(default_factory=list)


@dataclass
class Coordinator:
    """The transaction coordinator of a cluster; it never fails."""

    _cluster: SimCluster
    _by_id: dict[str, Transactional] = field(default_factory=dict)

    def init(self, transactional_id: str, *, raises_epoch: bool) -> Transactional:
        """Give a producer its id, or the next epoch; an open transaction is aborted."""
        one = self._by_id.get(transactional_id)
        if one is None:
            one = self._by_id[transactional_id] = Transactional(FIRST_PRODUCER_ID + len(self._by_id), raises_epoch)
            return one
        if one.partitions:
            self.end(one, ABORT)
        one.epoch += 1
        return one

    @staticmethod
    def add(one: Transactional, partition: SimPartition) -> None:
        """Add a partition to the transaction."""
        if partition not in one.partitions:
            one.partitions.append(partition)

    def end(self, one: Transactional, outcome: str) -> None:
        """Decide a transaction; its markers follow."""
        one.epoch += one.raises_epoch
        one.ending, one.partitions = one.partitions, []
        for number, partition in enumerate(one.ending):
            delay_s = self._cluster.random.uniform(0.001, 0.02) * (1 + number)
            self._cluster.clock.after(delay_s, partial(self._write, one, partition, outcome, one.epoch))

    def ending(self) -> list[str]:
        """Return the transactional ids whose markers are not on all replicas in sync."""
        return [name for name, one in self._by_id.items() if self.is_ending(one)]

    @staticmethod
    def is_ending(one: Transactional) -> bool:
        """Whether a marker of the last transaction is not on all replicas in sync."""
        one.written = [
            (partition, batch)
            for partition, batch in one.written
            if not partition.is_deleted and not partition.is_stored(batch)
        ]
        return bool(one.ending or one.written)

    def _write(self, one: Transactional, partition: SimPartition, outcome: str, epoch: int) -> None:
        if partition.is_deleted:
            # No marker for a partition that is gone (``TransactionMarkerChannelManager``).
            one.ending = [other for other in one.ending if other is not partition]
            return
        leader = partition.leader_id
        if leader is None or not self._cluster.is_reachable(leader):
            self._cluster.clock.after(RETRY_S, partial(self._write, one, partition, outcome, epoch))
            return
        base, now_ms = partition.leader.log_end, self._cluster.clock.time_ms()
        batch = Batch(
            base_offset=base,
            last_offset=base,
            records=(marker_record(base, now_ms, outcome),),
            max_timestamp_ms=now_ms,
            leader_epoch=partition.replication.leader_epoch,
            producer_id=one.producer_id,
            producer_epoch=epoch,
            transactional=True,
            control=True,
        )
        self._cluster.append(partition, batch)
        one.written.append((partition, batch))
        one.ending = [other for other in one.ending if other is not partition]
        self._watch(one, partition, batch, outcome, epoch)

    def _watch(self, one: Transactional, partition: SimPartition, batch: Batch, outcome: str, epoch: int) -> None:
        """Write a marker again that was lost with a leader."""

        def check() -> None:
            if partition.is_deleted:
                return
            stored = partition.is_stored(batch)
            if stored is None:
                one.written = [kept for kept in one.written if kept[1] is not batch]
                one.ending.append(partition)
                self._write(one, partition, outcome, epoch)
            elif not stored:
                self._watch(one, partition, batch, outcome, epoch)

        if not partition.is_stored(batch):
            self._cluster.clock.after(1.0, check)
