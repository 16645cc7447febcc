"""Connections to one broker, and what reads its replicas over them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka.protocol.api_message import ApiMessage

from fakes.brokers import Held, described, described_partition, fetched, fetched_partition
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection, SocketStream
from harness.kafka_api.fetch import ReplicaEnds, ReplicaReader, ReplicaState
from harness.kafka_api.messages import Request
from harness.kafka_api.transactions import OpenTransactions

T = TypeVar("T")
LOOPBACK = Address("127.0.0.1", 9092)
HELD = Held(9, 8)


@dataclass
class AnsweringStream(SocketStream):
    """A stream without a socket: a function from a message to its answer."""

    answer: Callable[[Any], Any]

    def call(self, message: ApiMessage) -> Any:
        return self.answer(message)

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class FailingDial:
    """Implements `harness.kafka_api.connection.Dial`: requests fail ``failures`` times, then are answered."""

    failures: int
    error: type[OSError] = TimeoutError
    dials: int = 0

    def __call__(self, _address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        self.dials += 1
        return AnsweringStream(self._answer)

    def _answer(self, _message: Any) -> str:
        if self.failures:
            self.failures -= 1
            raise self.error("it failed")
        return "answer"


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

    def ask(self, request: Request[T]) -> T:
        return request.decode(self._answer(request.message))

    def _answer(self, request: Any) -> Any:
        if type(request).__name__.startswith("DescribeProducers"):
            return described(
                ((topic.name, number), self._described(topic.name, number))
                for topic in request.topics
                for number in topic.partition_indexes
            )
        return fetched(
            ((topic.topic, p.partition), self._served(topic.topic, p, request.replica_id))
            for topic in request.topics
            for p in topic.partitions
        )

    def _served(self, topic: str, wanted: Any, replica_id: int) -> Any:
        tp = (topic, wanted.partition)
        self.asked.append((replica_id, wanted.fetch_offset))
        records = next((data for end, data in self.chunks.get(tp, []) if end > wanted.fetch_offset), b"")
        return fetched_partition(wanted.partition, self.held, records, code=self.errors.get(tp, 0), has_aborted=True)

    def _described(self, topic: str, number: int) -> Any:
        return described_partition(number, self.held, code=self.errors.get((topic, number), 0))


class StallingReader:
    """Implements `ReplicaReader` of short logs without transactions; the first ``stalls`` readers stall at a Fetch."""

    def __init__(self, stalls: int) -> None:
        self.stalls = stalls
        self.opened = self.closed = 0

    def reader(self, _broker: int) -> ReplicaReader:
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
