"""A producer with explicit requests: one Produce is one batch, as a schedule has it.

Client libraries batch records by the clock. What brokers store follows from requests alone, so
these go through kafka-python's protocol classes, in the order in which ``Sender`` and ``TransactionManager`` send them.
A producer of data and one of a group's offsets (`harness.model_checking.conform.offsets`) differ in two requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.markers import COMMIT
from harness.broker_files.segments.records import Record
from harness.kafka_api import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.model_checking.conform.topic import Codes, Topic

    RequestAndCodes: TypeAlias = tuple[ApiMessage, Codes]

TIMEOUT_MS: Final = 5000
TRANSACTION_TIMEOUT_MS: Final = 600_000
ALL_IN_SYNC: Final = -1
PRODUCE, END = {1: 9, 2: 12}, {1: 3, 2: 5}
"""Request versions by which a broker knows the transaction version of a client (KIP-890)."""


class Identity(NamedTuple):
    """What a request says of its producer. ``version``: of its transactions."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    sequence: int
    version: int


class Requests(Protocol):
    """Requests about one partition, each with the error codes in its answer."""

    def register(self, identity: Identity) -> RequestAndCodes:
        """Return the request that adds the partition to a transaction."""
        ...

    def write(
        self, identity: Identity, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> RequestAndCodes:
        """Return the request that has one batch written."""
        ...


@dataclass(frozen=True)
class DataRequests:
    """Implements `Requests` for partition 0 of a topic."""

    topic: str

    def register(self, identity: Identity) -> RequestAndCodes:
        """Add the partition to a transaction."""
        Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic  # noqa: N806
        request = AddPartitionsToTxnRequest[3](
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[Topic(name=self.topic, partitions=[0])],
        )
        return request, lambda answer: [
            p.partition_error_code for topic in answer.results_by_topic_v3_and_below for p in topic.results_by_partition
        ]

    def write(
        self, identity: Identity, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> RequestAndCodes:
        """Produce a batch with that time."""
        batch = encode_batch(
            base_offset=0,
            records=[Record(n, timestamp_ms, key, value) for n, (key, value) in enumerate(records)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=identity.sequence,
            is_transactional=identity.transactional_id is not None,
            leader_epoch=-1,
        )
        Topic = ProduceRequest.TopicProduceData  # noqa: N806
        request = ProduceRequest[PRODUCE[identity.version]](
            transactional_id=identity.transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=TIMEOUT_MS,
            topic_data=[Topic(name=self.topic, partition_data=[Topic.PartitionProduceData(index=0, records=batch)])],
        )
        return request, lambda answer: [p.error_code for topic in answer.responses for p in topic.partition_responses]


class Producer:
    """One producer of one partition. ``transactional_id``: None for an idempotent one, or one without an id."""

    def __init__(
        self, topic: Topic, requests: Requests, *, transactional_id: str | None, has_id: bool, version: int
    ) -> None:
        """Obtain an id, unless it has none. ``version``: of its transactions."""
        self._topic = topic
        self._requests = requests
        self._transactional_id = transactional_id
        self._version = version
        self.producer_id, self._epoch, self._sequence = -1, -1, -1
        self._is_registered = False
        if has_id:
            self.begin_anew()

    def _coordinator(self) -> wire.Address:
        request = FindCoordinatorRequest[3](key=self._transactional_id, key_type=CoordinatorType.TRANSACTION)
        answer = self._topic.ask("the coordinator", self._topic.anyone, request, _own_code)
        return wire.Address(answer.host, answer.port)

    def begin_anew(self) -> None:
        """Obtain an id, or a higher epoch; an open transaction is aborted first."""
        request = InitProducerIdRequest[4](
            transactional_id=self._transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        where = self._coordinator if self._transactional_id else self._topic.anyone
        answer = self._topic.ask("a producer id", where, request, _own_code)
        self.producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
        self._is_registered = False

    @property
    def _identity(self) -> Identity:
        return Identity(self._transactional_id, self.producer_id, self._epoch, self._sequence, self._version)

    def write(self, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int) -> None:
        """Write one batch with that time to the partition's leader; begin a transaction if needed."""
        if self._transactional_id is not None and self._version == 1:
            self.register()
        request, codes = self._requests.write(self._identity, records, timestamp_ms)
        self._topic.ask("a batch", self._topic.leader, request, codes)
        if self._sequence >= 0:
            self._sequence += len(records)

    def register(self) -> None:
        """Add the partition to the transaction, which begins it."""
        if self._is_registered:
            return
        request, codes = self._requests.register(self._identity)
        self._topic.ask("a transaction", self._coordinator, request, codes)
        self._is_registered = True

    def end(self, outcome: str) -> None:
        """End the transaction; its marker is written after the answer."""
        request = EndTxnRequest[END[self._version]](
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            committed=outcome == COMMIT,
        )
        answer = self._topic.ask("the end", self._coordinator, request, _own_code)
        self._is_registered = False
        if self._version > 1:
            self._epoch, self._sequence = answer.producer_epoch, 0


def _own_code(answer: Any) -> list[int]:
    return [answer.error_code]
