"""A producer with explicit requests: one Produce is one batch, as a schedule has it.

Client libraries batch records by the clock. What brokers store follows from requests alone, so
these go through kafka-python's protocol classes, in the order in which ``Sender`` and ``TransactionManager`` send them.
Retriable errors (``retriable``) are retried, within a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import kafka.errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from harness.brokers.protocol import wire
from harness.brokers.segments.encode import encode_batch
from harness.brokers.segments.markers import COMMIT
from harness.brokers.segments.records import Record
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.host.clock import Clock

REQUEST_S: Final = 20.0
TIMEOUT_MS: Final = 5000
TRANSACTION_TIMEOUT_MS: Final = 600_000
ALL_IN_SYNC: Final = -1
Codes: TypeAlias = "Callable[[Any], Sequence[int]]"
"""Returns the error codes of an answer."""
DUPLICATE_SEQUENCE: Final = 46
"""The answer to a retry of a batch that was written at the first attempt."""
PRODUCE, END = {1: 9, 2: 12}, {1: 3, 2: 5}
"""Request versions by which a broker knows the transaction version of a client (KIP-890)."""


class RefusedError(HarnessError):
    """A broker rejects a request, and retrying would not help."""


@dataclass(frozen=True)
class Endpoint:
    """The destination of requests. ``leader``: of the partition, now; ``anyone``: any live broker."""

    topic: str
    leader: Callable[[], wire.Address]
    anyone: Callable[[], wire.Address]
    clock: Clock

    def ask(self, what: str, where: Callable[[], wire.Address], request: ApiMessage, codes: Codes) -> Any:
        """Send until there is an answer. Raises `RefusedError` for a permanent error."""

        def answered() -> list[Any]:
            answer = wire.call(where(), request, timeout_s=TIMEOUT_MS / 1000)
            errors = [kafka.errors.for_code(code) for code in codes(answer) if code not in {0, DUPLICATE_SEQUENCE}]
            final = [error.__name__ for error in errors if not error.retriable]
            if final:
                raise RefusedError(f"{what} is refused with {', '.join(final)}")
            return [] if errors else [answer]

        return self.clock.wait_until(answered, REQUEST_S, f"{what} in {self.topic}")[0]


class Producer:
    """One producer of one partition. ``transactional_id``: None for an idempotent one, or one without an id."""

    def __init__(self, to: Endpoint, *, transactional_id: str | None, has_id: bool, version: int) -> None:
        """Obtain an id, unless it has none. ``version``: of its transactions."""
        self._to = to
        self._transactional_id = transactional_id
        self._version = version
        self.producer_id, self._epoch, self._sequence = -1, -1, -1
        self._is_registered = False
        if has_id:
            self.begin_anew()

    def _coordinator(self) -> wire.Address:
        request = FindCoordinatorRequest[3](key=self._transactional_id, key_type=CoordinatorType.TRANSACTION)
        answer = self._to.ask("the coordinator", self._to.anyone, request, _own_code)
        return wire.Address(answer.host, answer.port)

    def begin_anew(self) -> None:
        """Obtain an id, or a higher epoch; an open transaction is aborted first."""
        request = InitProducerIdRequest[4](
            transactional_id=self._transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        where = self._coordinator if self._transactional_id else self._to.anyone
        answer = self._to.ask("a producer id", where, request, _own_code)
        self.producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
        self._is_registered = False

    def write(self, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int) -> None:
        """Write one batch with that time to the partition's leader; begin a transaction if needed."""
        is_transactional = self._transactional_id is not None
        if is_transactional and self._version == 1:
            self.register()
        batch = encode_batch(
            base_offset=0,
            records=[Record(n, timestamp_ms, key, value) for n, (key, value) in enumerate(records)],
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=is_transactional,
            leader_epoch=-1,
        )
        Topic = ProduceRequest.TopicProduceData  # noqa: N806
        request = ProduceRequest[PRODUCE[self._version]](
            transactional_id=self._transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                Topic(name=self._to.topic, partition_data=[Topic.PartitionProduceData(index=0, records=batch)])
            ],
        )
        self._to.ask(
            "a batch",
            self._to.leader,
            request,
            lambda answer: [p.error_code for topic in answer.responses for p in topic.partition_responses],
        )
        if self._sequence >= 0:
            self._sequence += len(records)

    def register(self) -> None:
        """Add the partition to the transaction, which begins it."""
        if self._is_registered:
            return
        Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic  # noqa: N806
        request = AddPartitionsToTxnRequest[3](
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[Topic(name=self._to.topic, partitions=[0])],
        )
        self._to.ask(
            "a transaction",
            self._coordinator,
            request,
            lambda answer: [
                p.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for p in topic.results_by_partition
            ],
        )
        self._is_registered = True

    def end(self, outcome: str) -> None:
        """End the transaction; its marker is written after the answer."""
        request = EndTxnRequest[END[self._version]](
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            committed=outcome == COMMIT,
        )
        answer = self._to.ask("the end", self._coordinator, request, _own_code)
        self._is_registered = False
        if self._version > 1:
            self._epoch, self._sequence = answer.producer_epoch, 0


def _own_code(answer: Any) -> list[int]:
    return [answer.error_code]
