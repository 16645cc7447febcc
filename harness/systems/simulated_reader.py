"""Reads the replicas of simulated brokers, which are asked directly, as an observer or as a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.brokers.protocol.replica import DEBUG_REPLICA_ID, OpenTransaction, ReplicaState
from models.delivery import delivered, listed_aborts, stable_batches

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

    def served(self, tp: TopicPartition) -> Replica | None:
        """Return the replica that the broker serves of a partition; None where it has none. Raises OSError."""
        self._raise_if_away()
        partition = self._cluster.partitions[tp]
        return self._cluster.served(partition, self._broker) if self._broker in partition.replication.replicas else None

    def _state(self, tp: TopicPartition, replica_id: int) -> ReplicaState | str:
        partition = self._cluster.partitions[tp]
        if self._broker not in partition.replication.replicas:
            return "NotLeaderOrFollowerError"
        version = partition.versions.get(self._broker, 0)
        answer = self._answers.get((tp, replica_id))
        if answer is None or answer[0] != version:
            replica = self._cluster.served(partition, self._broker)
            answer = version, self._read(replica, is_consumer=replica_id != DEBUG_REPLICA_ID)
            self._answers[tp, replica_id] = answer
        return answer[1]

    def _read(self, replica: Replica, *, is_consumer: bool) -> ReplicaState:
        batches = stable_batches(replica) if is_consumer else replica.from_offset(replica.log_start)
        return ReplicaState(
            log_start=replica.log_start,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            aborted=listed_aborts(replica) if is_consumer else (),
            records=b"".join(map(self._cluster.sizes.bytes_of, batches)),
        )


class SimulatedReading:
    """Implements `harness.clients.reader.Reading`: whatever it reads is at hand at once."""

    def __init__(self, reader: SimulatedReader, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read from the broker of ``reader``."""
        self.delivered: dict[TopicPartition, list[dict[str, Any]]] = {tp: [] for tp in partitions}
        self.ends: dict[TopicPartition, int] = {}
        self._reader = reader

    def is_at_end(self) -> bool:
        """Read everything up to the last stable offset; there is no more."""
        for tp in self.delivered:
            if (replica := self._reader.served(tp)) is not None:
                self.delivered[tp] = [
                    {
                        "offset": record.offset,
                        "key": (record.key or b"").decode(),
                        "value": None if record.value is None else record.value.decode(),
                    }
                    for record in delivered(replica)
                ]
                offsets = (batch.last_offset + 1 for batch in stable_batches(replica))
                self.ends[tp] = max(offsets, default=replica.log_start)
        return len(self.ends) == len(self.delivered)

    def close(self) -> None:
        """There is nothing to let go of."""


def open_in(replica: Replica) -> tuple[OpenTransaction, ...]:
    """Return the transactions that a replica holds open."""
    return tuple(
        OpenTransaction(producer_id, one.epoch, one.open_from)
        for producer_id, one in replica.producers.items()
        if one.open_from is not None
    )
