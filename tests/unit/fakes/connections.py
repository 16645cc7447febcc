"""Connections to one broker, and what reads its replicas over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from harness.protocol.replica import ReplicaState
from harness.protocol.wire import Address, Connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka.protocol.api_message import ApiMessage

    from harness.protocol.replica import Held, Reader, TopicPartition

LOOPBACK = Address("127.0.0.1", 9092)


@dataclass
class SegmentConnection(Connection):
    """A broker that answers a Fetch with the first chunk that goes on past the offset, as one segment a Fetch.

    ``chunks``: per partition (end offset, bytes). ``errors``: error codes instead of an answer.
    """

    chunks: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    errors: dict[TopicPartition, int] = field(default_factory=dict)
    aborted: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)
    producers: list[tuple[int, int, int]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    address: Address = LOOPBACK

    def call(self, request: Any) -> Any:
        if type(request).__name__.startswith("DescribeProducers"):
            return SimpleNamespace(topics=[self._described(topic) for topic in request.topics])
        return SimpleNamespace(
            responses=[
                SimpleNamespace(topic=topic.topic, partitions=[self._served(topic.topic, p, request.replica_id)])
                for topic in request.topics
                for p in topic.partitions
            ]
        )

    def _served(self, topic: str, partition: Any, replica_id: int) -> Any:
        tp = (topic, partition.partition)
        self.asked.append((replica_id, partition.fetch_offset))
        chunks = self.chunks.get(tp, [])
        records = next((data for end, data in chunks if end > partition.fetch_offset), b"")
        return SimpleNamespace(
            partition_index=partition.partition,
            error_code=self.errors.get(tp, 0),
            log_start_offset=0,
            high_watermark=9,
            last_stable_offset=8,
            aborted_transactions=[
                SimpleNamespace(producer_id=pid, first_offset=first) for pid, first in self.aborted.get(tp, [])
            ],
            records=records,
        )

    def _described(self, topic: Any) -> Any:
        producers = [
            SimpleNamespace(producer_id=pid, producer_epoch=epoch, current_txn_start_offset=first)
            for pid, epoch, first in self.producers
        ]
        (index,) = topic.partition_indexes
        code = self.errors.get((topic.name, index), 0)
        told = SimpleNamespace(partition_index=index, error_code=code, active_producers=producers)
        return SimpleNamespace(name=topic.name, partitions=[told])


@dataclass
class FailingConnection(Connection):
    """Fails ``failures`` times, then answers. To be called in place of `connect`: it is every connection in turn."""

    failures: int
    dials: int = 0

    def __call__(self, _address: Address) -> Connection:
        self.dials += 1
        return self

    def call(self, _request: ApiMessage) -> str:
        if self.failures:
            self.failures -= 1
            raise TimeoutError("timed out")
        return "answer"

    def close(self) -> None:
        """Nothing is open."""


class StallingReader:
    """Implements `Reader` of empty transactions and short logs; the first ``stalls`` readers stall at a Fetch."""

    def __init__(self, stalls: int) -> None:
        self.stalls = stalls
        self.opened = self.closed = 0

    def reader(self, _broker: int) -> Reader:
        self.opened += 1
        return self

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Held]:
        return dict.fromkeys(partitions, ())

    def read(
        self, partitions: Iterable[TopicPartition], **_replica_id: int
    ) -> dict[TopicPartition, ReplicaState | str]:
        if self.opened <= self.stalls:
            raise TimeoutError("timed out")
        return dict.fromkeys(partitions, ReplicaState(0, 1, 1, aborted=(), records=b"batch"))

    def close(self) -> None:
        self.closed += 1
