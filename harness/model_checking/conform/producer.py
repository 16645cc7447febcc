"""A producer with explicit requests, as a schedule has it, in the order in which clients' ``Sender`` sends them.

A producer of data and one of a group's offsets differ in two requests. A step's key of a group is the name of an input
topic with one partition, and what it writes is the offset of that partition. The group has no members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import COMMIT, Record
from harness.kafka_api import producing
from harness.kafka_api.groups import commit_offsets, delete_offset
from harness.kafka_api.metadata import find_coordinator
from harness.kafka_api.producing import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import Request
    from harness.model_checking.conform.topic import Topic

    KeysAndValues = Sequence[tuple[bytes, bytes | None]]

TRANSACTION_TIMEOUT_MS: Final = 600_000


class PartitionRequests(Protocol):
    """Requests about one partition."""

    def register(self, producer: ProducerIdentity) -> Request[None]:
        """Add the partition to a transaction."""
        ...

    def write(
        self, producer: ProducerIdentity, sequence: int, version: int, records: KeysAndValues, timestamp_ms: int
    ) -> Request[None]:
        """Write one batch. ``version``: of the producer's transactions."""
        ...


@dataclass(frozen=True)
class DataRequests:
    """Implements `PartitionRequests` for partition 0 of a topic."""

    topic: str

    def register(self, producer: ProducerIdentity) -> Request[None]:
        """Add the partition to a transaction."""
        return producing.add_partition(producer, (self.topic, 0))

    def write(
        self, producer: ProducerIdentity, sequence: int, version: int, records: KeysAndValues, timestamp_ms: int
    ) -> Request[None]:
        """Produce a batch with that time."""
        batch = encode_batch(
            base_offset=0,
            records=[Record(n, timestamp_ms, key, value) for n, (key, value) in enumerate(records)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=producer.transactional_id is not None,
            leader_epoch=-1,
        )
        return producing.produce((self.topic, 0), batch, producer.transactional_id, version)


@dataclass(frozen=True)
class OffsetRequests:
    """Implements `PartitionRequests` for the offsets of a group; a value is the offset's digits."""

    group: str

    def register(self, producer: ProducerIdentity) -> Request[None]:
        """Add the group's partition of ``__consumer_offsets`` to a transaction."""
        return producing.add_offsets(producer, self.group)

    def write(
        self, producer: ProducerIdentity, _sequence: int, version: int, records: KeysAndValues, _timestamp_ms: int
    ) -> Request[None]:
        """Commit an offset, in a transaction or not, or delete it."""
        ((key, value),) = records
        partition = (key.decode(), 0)
        if value is None:
            return delete_offset(self.group, partition)
        offsets = {partition: int(value)}
        if producer.transactional_id is None:
            return commit_offsets(self.group, offsets)
        return producing.commit_in_transaction(producer, self.group, offsets, version)


class Producer:
    """One producer of one partition. ``transactional_id``: None for an idempotent one, or one without an id."""

    def __init__(
        self, topic: Topic, requests: PartitionRequests, *, transactional_id: str | None, has_id: bool, version: int
    ) -> None:
        """Obtain an id, unless it has none. ``version``: of its transactions."""
        self._topic = topic
        self._requests = requests
        self._version = version
        self._identity, self._sequence = ProducerIdentity(transactional_id), -1
        self._is_registered = False
        if has_id:
            self.begin_anew()

    @property
    def producer_id(self) -> int:
        """The producer's id; -1 without one."""
        return self._identity.producer_id

    def _coordinator(self) -> Address:
        return self._topic.ask(self._topic.anyone, find_coordinator(self._identity.transactional_id or ""))

    def begin_anew(self) -> None:
        """Obtain an id, or a higher epoch; an open transaction is aborted first."""
        transactional_id = self._identity.transactional_id
        where = self._coordinator if transactional_id else self._topic.anyone
        self._identity = self._topic.ask(where, producing.init_producer_id(transactional_id, TRANSACTION_TIMEOUT_MS))
        self._sequence = 0
        self._is_registered = False

    def write(self, records: KeysAndValues, timestamp_ms: int) -> None:
        """Write one batch with that time to the partition's leader; begin a transaction if needed."""
        if self._identity.transactional_id is not None and self._version == 1:
            self.register()
        request = self._requests.write(self._identity, self._sequence, self._version, records, timestamp_ms)
        self._topic.ask(self._topic.leader, request)
        if self._sequence >= 0:
            self._sequence += len(records)

    def register(self) -> None:
        """Add the partition to the transaction, which begins it."""
        if not self._is_registered:
            self._topic.ask(self._coordinator, self._requests.register(self._identity))
            self._is_registered = True

    def end(self, outcome: str) -> None:
        """End the transaction; its marker is written after the answer."""
        request = producing.end_transaction(
            self._identity, is_commit=outcome == COMMIT, transaction_version=self._version
        )
        self._identity = self._topic.ask(self._coordinator, request)
        self._is_registered = False
        if self._version > 1:
            self._sequence = 0
