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
            tps = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
            return described((tp, described_partition(tp[1], self.held, code=self.errors.get(tp, 0))) for tp in tps)
        asked = [((topic.topic, p.partition), p.fetch_offset) for topic in request.topics for p in topic.partitions]
        self.asked += [(request.replica_id, offset) for _, offset in asked]
        return fetched((tp, self._served(tp, offset)) for tp, offset in asked)

    def _served(self, tp: TopicPartition, offset: int) -> Any:
        records = next((data for end, data in self.chunks.get(tp, []) if end > offset), b"")
        return fetched_partition(tp[1], self.held, records, code=self.errors.get(tp, 0), has_aborted=True)


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

    def read(self, partitions: Iterable[TopicPartition], **_: int) -> dict[TopicPartition, ReplicaState | str]:
        return self._answers(partitions, ReplicaState(0, 1, 1, aborted=(), records=b"batch"))

    def ends(self, positions: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaEnds | str]:
        return self._answers(positions, ReplicaEnds(1, 1, 1))

    def _answers(self, partitions: Iterable[TopicPartition], answer: Any) -> dict[TopicPartition, Any]:
        if self.opened <= self.stalls:
            raise TimeoutError("timed out")
        return dict.fromkeys(partitions, answer)

    def close(self) -> None:
        self.closed += 1
