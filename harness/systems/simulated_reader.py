"""Read the replicas of simulated brokers as an observer or as a consumer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.segments.batches import iter_batches
from harness.kafka_api.fetch import DEBUG_REPLICA_ID, ReplicaState
from harness.kafka_api.replica import ReplicaEnds
from harness.kafka_api.transactions import OpenTransaction
from harness.models.log.batch import encoded
from harness.models.log.delivery import batches_up_to, delivered, listed_aborts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.transactions import OpenTransactions
    from harness.models.cluster.cluster import SimCluster
    from harness.models.log.replica import Replica


NO_REPLICA: Final = "NotLeaderOrFollowerError"
"""The error of a broker without a replica of the partition."""


def _ends(replica: Replica) -> ReplicaEnds:
    return ReplicaEnds(replica.log_end, replica.high_watermark, replica.last_stable_offset)


@dataclass(frozen=True)
class SimulatedReader:
    """Implements `harness.kafka_api.replica.ReplicaReader`."""

    cluster: SimCluster
    broker: int
    _answers: dict[tuple[TopicPartition, int], tuple[int, ReplicaState]] = field(default_factory=dict)

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica; a consumer reads up to the last stable offset."""
        self._raise_if_down()
        return {tp: self._state(tp, replica_id) for tp in partitions}

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return the ends of each replica."""
        return {tp: _ends(served) if (served := self.served(tp)) else NO_REPLICA for tp in positions}

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions of each replica."""
        self._raise_if_down()
        replicas = {tp: self.cluster.partitions[tp].replica(self.broker) for tp in partitions}
        return {tp: tuple(OpenTransaction(*fields) for fields in replicas[tp].open_transactions) for tp in partitions}

    def close(self) -> None:
        """Do nothing."""

    def _raise_if_down(self) -> None:
        if not self.cluster.is_reachable(self.broker):
            raise ConnectionError(f"broker {self.broker} does not answer")

    def served(self, tp: TopicPartition) -> Replica | None:
        """Return the replica that the broker serves for a partition, or None. Raises OSError."""
        self._raise_if_down()
        partition = self.cluster.partitions[tp]
        return self.cluster.served(partition, self.broker) if self.broker in partition.replication.replicas else None

    def _state(self, tp: TopicPartition, replica_id: int) -> ReplicaState | str:
        partition = self.cluster.partitions[tp]
        if self.broker not in partition.replication.replicas:
            return NO_REPLICA
        version = partition.versions.get(self.broker, 0)
        answer = self._answers.get((tp, replica_id))
        if answer is None or answer[0] != version:
            replica = self.cluster.served(partition, self.broker)
            answer = version, self._read(replica, is_consumer=replica_id != DEBUG_REPLICA_ID)
            self._answers[tp, replica_id] = answer
        return answer[1]

    def _read(self, replica: Replica, *, is_consumer: bool) -> ReplicaState:
        batches = batches_up_to(replica, replica.last_stable_offset if is_consumer else replica.log_end)
        records = b"".join(map(encoded, batches))
        return ReplicaState(
            log_start=replica.log_start,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            aborted=listed_aborts(replica) if is_consumer else (),
            records=records,
            batches=tuple(iter_batches(records, source="a simulated log", verify_crc=False)),
        )


@dataclass
class SimulatedReading:
    """Implements `harness.clients.reader.Reading`; every read is complete immediately."""

    reader: SimulatedReader
    delivered: dict[TopicPartition, list[dict[str, Any]]]
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def is_at_end(self) -> bool:
        """Read everything up to the last stable offset."""
        for tp in self.delivered:
            if (replica := self.reader.served(tp)) is not None:
                self.delivered[tp] = [
                    {
                        "offset": record.offset,
                        "key": (record.key or b"").decode(),
                        "value": None if record.value is None else record.value.decode(),
                    }
                    for record in delivered(replica)
                ]
                offsets = (batch.last_offset + 1 for batch in batches_up_to(replica, replica.last_stable_offset))
                self.ends[tp] = max(offsets, default=replica.log_start)
        return len(self.ends) == len(self.delivered)

    def close(self) -> None:
        """Do nothing."""
