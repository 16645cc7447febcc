"""Connections to one broker, and what reads its replicas over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fakes.brokers import Held, described_partition, fetched_partition
from harness.kafka_api.replica import ReplicaEnds, ReplicaState
from harness.kafka_api.wire import Address, Connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka.protocol.api_message import ApiMessage

    from harness.kafka_api.replica import OpenTransactions, Reader, TopicPartition

LOOPBACK = Address("127.0.0.1", 9092)
HELD = Held(9, 8)


@dataclass
class SegmentConnection(Connection):
    """A broker that answers a Fetch with the first chunk that goes on past the offset, as one segment a Fetch.

    ``chunks``: per partition (end offset, bytes). ``errors``: error codes instead of an answer. ``held``: the rest of
    what it says of every replica. ``asked`` has replica id and offset of each partition of a Fetch.
    """

    chunks: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    errors: dict[TopicPartition, int] = field(default_factory=dict)
    held: Held = HELD
    asked: list[tuple[int, int]] = field(default_factory=list)
    address: Address = LOOPBACK

    def call(self, request: Any) -> Any:
        if type(request).__name__.startswith("DescribeProducers"):
            return SimpleNamespace(
                topics=[
                    SimpleNamespace(name=t.name, partitions=[self._described(t.name, n) for n in t.partition_indexes])
                    for t in request.topics
                ]
            )
        return SimpleNamespace(
            responses=[
                SimpleNamespace(topic=topic.topic, partitions=[self._served(topic.topic, p, request.replica_id)])
                for topic in request.topics
                for p in topic.partitions
            ]
        )

    def _served(self, topic: str, wanted: Any, replica_id: int) -> Any:
        tp = (topic, wanted.partition)
        self.asked.append((replica_id, wanted.fetch_offset))
        records = next((data for end, data in self.chunks.get(tp, []) if end > wanted.fetch_offset), b"")
        return fetched_partition(wanted.partition, self.held, records, code=self.errors.get(tp, 0), has_aborted=True)

    def _described(self, topic: str, number: int) -> Any:
        return described_partition(number, self.held, code=self.errors.get((topic, number), 0))


@dataclass
class FailingConnection(Connection):
    """Fails ``failures`` times, then answers. To be called in place of `Connection`: it is every connection in turn."""

    failures: int
    dials: int = 0

    def __call__(self, _address: Address, **_timeout_s: float) -> Connection:
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

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransactions]:
        return dict.fromkeys(partitions, ())

    def read(
        self, partitions: Iterable[TopicPartition], **_replica_id: int
    ) -> dict[TopicPartition, ReplicaState | str]:
        if self.opened <= self.stalls:
            raise TimeoutError("timed out")
        return dict.fromkeys(partitions, ReplicaState(0, 1, 1, aborted=(), records=b"batch"))

    def ends(self, positions: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaEnds | str]:
        if self.opened <= self.stalls:
            raise TimeoutError("timed out")
        return dict.fromkeys(positions, ReplicaEnds(1, 1, 1))

    def close(self) -> None:
        self.closed += 1
