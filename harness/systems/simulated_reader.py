"""Reads the replicas of simulated brokers, which are asked directly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.brokers.protocol.replica import DEBUG_REPLICA_ID, OpenTransaction, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.brokers.protocol.replica import OpenTransactions, TopicPartition
    from models.cluster.cluster import SimCluster
    from models.replica import Replica


class SimulatedReader:
    """Implements `harness.brokers.protocol.replica.Reader`."""

    def __init__(self, cluster: SimCluster, broker: int) -> None:
        """Remember whom to ask."""
        self._cluster = cluster
        self._broker = broker
        self._answers: dict[tuple[TopicPartition, int], tuple[int, ReplicaState]] = {}

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica as it is; for a consumer, what it may be given."""
        self._raise_if_away()
        return {tp: self._state(tp, replica_id) for tp in partitions}

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return what each replica holds open."""
        self._raise_if_away()
        return {tp: open_in(self._cluster.partitions[tp].replica(self._broker)) for tp in partitions}

    def close(self) -> None:
        """There is nothing to let go of."""

    def _raise_if_away(self) -> None:
        if not self._cluster.is_reachable(self._broker):
            raise ConnectionError(f"broker {self._broker} does not answer")

    def _state(self, tp: TopicPartition, replica_id: int) -> ReplicaState | str:
        partition = self._cluster.partitions[tp]
        if self._broker not in partition.replication.replicas:
            return "NotLeaderOrFollowerError"
        version = partition.versions.get(self._broker, 0)
        answer = self._answers.get((tp, replica_id))
        if answer is None or answer[0] != version:
            answer = (
                version,
                self._read(self._cluster.served(partition, self._broker), is_consumer=replica_id != DEBUG_REPLICA_ID),
            )
            self._answers[tp, replica_id] = answer
        return answer[1]

    def _read(self, replica: Replica, *, is_consumer: bool) -> ReplicaState:
        stable_offset = replica.last_stable_offset
        end = stable_offset if is_consumer else replica.log_end
        batches = [batch for batch in replica.from_offset(replica.log_start) if batch.base_offset < end]
        return ReplicaState(
            log_start=replica.log_start,
            high_watermark=replica.high_watermark,
            last_stable_offset=stable_offset,
            aborted=tuple(
                (one.producer_id, one.first_offset)
                for one in replica.aborted
                if is_consumer and one.last_offset >= replica.log_start and one.first_offset < end
            ),
            records=b"".join(map(self._cluster.sizes.bytes_of, batches)),
        )


def open_in(replica: Replica) -> tuple[OpenTransaction, ...]:
    """Return the transactions that a replica holds open."""
    return tuple(
        OpenTransaction(producer_id, one.epoch, one.open_from)
        for producer_id, one in replica.producers.items()
        if one.open_from is not None
    )
