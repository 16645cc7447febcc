"""The transaction coordinator: producer ids and epochs, and the markers that end a transaction in each partition.

Sources: ``TransactionCoordinator``, ``TransactionMarkerChannelManager`` and KIP-890 (transactions of version 2 raise
the epoch at each end). The next transaction of the same producer begins once all markers of the last are written.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from harness.broker_files.segments.records import ABORT, marker_record
from harness.models.cluster.cluster import SimCluster
from harness.models.cluster.partition import SimPartition
from harness.models.log.batch import ModelBatch

FIRST_PRODUCER_ID: Final = 1000
RETRY_S: Final = 0.1
CHECK_S: Final = 1.0


@dataclass(eq=False)
class Transactional:
    """A transactional id. ``ending``: partitions without a marker yet; ``written``: markers that may not be stored."""

    producer_id: int
    raises_epoch: bool
    epoch: int = 0
    partitions: list[SimPartition] = field(default_factory=list)
    ending: list[SimPartition] = field(default_factory=list)
    written: list[tuple[SimPartition, ModelBatch]] = field(default_factory=list)


@dataclass
class TransactionCoordinator:
    """The transaction coordinator of a cluster; it never fails."""

    _cluster: SimCluster
    _by_id: dict[str, Transactional] = field(default_factory=dict)

    def init(self, transactional_id: str, *, raises_epoch: bool) -> Transactional:
        """Give a producer its id, or the next epoch; an open transaction is aborted with an epoch between."""
        if transactional_id not in self._by_id:
            self._by_id[transactional_id] = Transactional(FIRST_PRODUCER_ID + len(self._by_id), raises_epoch)
            return self._by_id[transactional_id]
        producer = self._by_id[transactional_id]
        if producer.partitions:
            producer.epoch += not producer.raises_epoch
            self.end(producer, ABORT)
        producer.epoch += 1
        return producer

    @staticmethod
    def add(producer: Transactional, partition: SimPartition) -> None:
        """Add a partition to the transaction."""
        if partition not in producer.partitions:
            producer.partitions.append(partition)

    def end(self, producer: Transactional, outcome: str) -> None:
        """End a transaction; its markers follow."""
        producer.epoch += producer.raises_epoch
        producer.ending, producer.partitions = producer.partitions, []
        for number, partition in enumerate(producer.ending):
            delay_s = self._cluster.random.uniform(0.001, 0.02) * (1 + number)
            self._cluster.clock.after(delay_s, partial(self._write, producer, partition, outcome, producer.epoch))

    def ending(self) -> list[str]:
        """Return the transactional ids whose markers are not on all replicas in sync."""
        return [name for name, producer in self._by_id.items() if self.is_ending(producer)]

    @staticmethod
    def is_ending(producer: Transactional) -> bool:
        """Return whether a marker of the last transaction is not on all replicas in sync."""
        producer.written = [
            (partition, batch)
            for partition, batch in producer.written
            if not partition.is_deleted and not partition.is_stored(batch)
        ]
        return bool(producer.ending or producer.written)

    def _write(self, producer: Transactional, partition: SimPartition, outcome: str, epoch: int) -> None:
        leader, clock = partition.leader_id, self._cluster.clock
        if not partition.is_deleted and (leader is None or not self._cluster.is_reachable(leader)):
            clock.after(RETRY_S, partial(self._write, producer, partition, outcome, epoch))
            return
        producer.ending = [other for other in producer.ending if other is not partition]
        if partition.is_deleted:
            # No marker for a partition that was deleted (``TransactionMarkerChannelManager``).
            return
        base, now_ms = partition.leader.log_end, clock.time_ms()
        batch = ModelBatch(
            base,
            base,
            (marker_record(base, now_ms, outcome),),
            now_ms,
            leader_epoch=partition.replication.leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            transactional=True,
            control=True,
        )
        self._cluster.append(partition, batch)
        producer.written.append((partition, batch))

        def check() -> None:
            """Write the marker again if it was lost with a leader."""
            if partition.is_deleted or (is_stored := partition.is_stored(batch)):
                return
            if is_stored is None:
                producer.written = [pair for pair in producer.written if pair[1] is not batch]
                producer.ending.append(partition)
                self._write(producer, partition, outcome, epoch)
            else:
                clock.after(CHECK_S, check)

        check()
