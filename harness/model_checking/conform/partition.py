"""One schedule's partition on real brokers, and its producers, which send explicit requests as ``Sender`` does.

A partition is one of a topic, or the one of ``__consumer_offsets`` that keeps a group without members. A step's key is
then the name of an input topic with one partition, and its value is a committed offset of this topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import COMMIT, Record
from harness.kafka_api import TopicPartition, client_requests, connection
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import ProducerIdentity, commit_offsets, delete_offset
from harness.kafka_api.connection import RetryPolicy, retried
from harness.kafka_api.messages import Request, RetriableError
from harness.kafka_api.metadata import find_coordinator
from harness.kafka_api.topics import delete_records
from harness.model_checking.conform.picture import Named
from harness.model_checking.conform.schedules import STAYING
from harness.models.world.world import ABSENT, PLAIN, PRODUCERS, keys_and_values
from harness.schedules import operations as ops
from harness.schedules.placement import led_by
from harness.schedules.schedule import Schedule

if TYPE_CHECKING:
    from harness.model_checking.conform.brokers import Brokers

    KeysAndValues = Sequence[tuple[bytes, bytes | None]]

T = TypeVar("T")
REQUEST_S: Final = 20.0
ONE_ANSWER: Final = RetryPolicy(answer_s=5.0)
TRANSACTION_TIMEOUT_MS: Final = 600_000


class BrokerPartition:
    """One schedule's partition. ``partition``: its topic and number. ``group``: the group that it keeps, or None."""

    def __init__(
        self, brokers: Brokers, schedule: Schedule, partition: TopicPartition, group: str | None = None
    ) -> None:
        """Store the parts; producers are made at their first use."""
        self._cluster, self.address = brokers.cluster, brokers.cluster.runtime.address
        self.name, self.partition, self.group = schedule.case, partition, group
        self.version = 2 if brokers.rules.epoch_bump else 1
        self._replicas = schedule.plan.brokers
        self.leader_id = self._replicas[0]
        self._producers: dict[str, RequestProducer] = {}
        self._log_end = 0

    def leader(self) -> Address:
        """Return the address of the partition's leader."""
        return self.address(self.leader_id)

    def any_broker(self) -> Address:
        """Return the address of a broker that always stays up."""
        return self.address(STAYING[0])

    def ask(self, where: Callable[[], Address], request: Request[T]) -> T:
        """Send until there is an answer; retriable errors are retried. Raises `RefusedError` for a permanent error."""
        clock = self._cluster.clock
        return retried(lambda: connection.ask(where(), request, ONE_ANSWER), clock, REQUEST_S, (RetriableError,))

    @property
    def named(self) -> Named:
        """Names of the producers by their ids; -1 is the id of a producer without one."""
        ids = {name: producer.identity.producer_id for name, producer in self._producers.items()}
        return {producer_id: name for name, producer_id in ids.items() if producer_id >= 0}

    def _producer(self, name: str) -> RequestProducer:
        if name not in self._producers:
            transactional_id = f"{self.name}-{name}" if name in PRODUCERS else None
            self._producers[name] = RequestProducer(self, transactional_id, has_id=name != PLAIN)
        return self._producers[name]

    def take(self, step: ops.Operation) -> None:
        """Take a step of this partition. Raises `HarnessError`."""
        match step:
            case ops.WriteBatch():
                self._producer(step.process).write(self._contents(step), self._cluster.clock.time_ms())
                self._log_end += len(step.keys)
            case ops.Write(key=key, deletes=deletes):
                self.take(ops.WriteBatch(step.process, (key,), (0,) if deletes else ()))
            case ops.End(outcome=outcome) | ops.EndElsewhere(outcome=outcome):
                if isinstance(step, ops.EndElsewhere):
                    self._producer(step.process).register()
                self._producer(step.process).end(outcome)
                self._log_end += 1
            case ops.Restart():
                self._producer(step.process).restart()
                self._log_end += 1
            case ops.ElectLeader(broker=broker):
                self._replicas = led_by(broker, self._replicas)
                self._cluster.lead({self.partition: self._replicas})
                self.leader_id = broker
            case ops.DeleteRecords(keeps=keeps):
                self.ask(self.leader, delete_records(self.partition, max(self._log_end - keeps, 0)))
            case ops.JoinIsr():
                self._replicas = (*self._replicas, ABSENT)
                self._cluster.replicas = {**self._cluster.replicas, self.partition: self._replicas}
                self._cluster.control.lead({self.partition: self._replicas})
                self._cluster.wait_absent_back()
            case ops.Rest():
                pass
            case _:
                raise ValueError(f"'{step}' is not an operation of a partition")

    def _contents(self, batch: ops.WriteBatch) -> KeysAndValues:
        """Return keys and values; a group commits the offset of the record that it writes, as in `world.groups`."""
        contents = keys_and_values(batch)
        if self.group is None:
            return contents
        offsets = enumerate(contents, self._log_end)
        return [(key, None if value is None else str(at).encode()) for at, (key, value) in offsets]


class RequestProducer:
    """One producer of one partition. ``transactional_id``: None for an idempotent one, or one without an id."""

    def __init__(self, partition: BrokerPartition, transactional_id: str | None, *, has_id: bool) -> None:
        """Obtain an id, unless it has none."""
        self._partition = partition
        self.identity, self._sequence = ProducerIdentity(transactional_id), -1
        self._is_registered = False
        if has_id:
            self.restart()

    def _coordinator(self) -> Address:
        request = find_coordinator(self.identity.transactional_id or "")
        return self._partition.address(self._partition.ask(self._partition.any_broker, request))

    def restart(self) -> None:
        """Obtain an id, or a higher epoch; an open transaction is aborted first."""
        transactional_id = self.identity.transactional_id
        where = self._coordinator if transactional_id else self._partition.any_broker
        request = client_requests.init_producer_id(transactional_id, TRANSACTION_TIMEOUT_MS)
        self.identity = self._partition.ask(where, request)
        self._sequence, self._is_registered = 0, False

    def write(self, records: KeysAndValues, timestamp_ms: int) -> None:
        """Write one batch with that time to the partition's leader; begin a transaction if needed."""
        producer, partition, version = self.identity, self._partition, self._partition.version
        if producer.transactional_id is not None and version == 1:
            self.register()
        if partition.group is not None:
            partition.ask(partition.leader, offset_request(producer, partition.group, version, records))
        else:
            batch = encode_batch(
                base_offset=0,
                records=[Record(n, timestamp_ms, key, value) for n, (key, value) in enumerate(records)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=self._sequence,
                is_transactional=producer.transactional_id is not None,
                leader_epoch=-1,
            )
            request = client_requests.produce(partition.partition, batch, producer.transactional_id, version)
            partition.ask(partition.leader, request)
        if self._sequence >= 0:
            self._sequence += len(records)

    def register(self) -> None:
        """Add the partition to the transaction, which begins it."""
        if not self._is_registered:
            group, place = self._partition.group, self._partition.partition
            of_group = group and client_requests.add_offsets(self.identity, group)
            add = of_group or client_requests.add_partition(self.identity, place)
            self._partition.ask(self._coordinator, add)
            self._is_registered = True

    def end(self, outcome: str) -> None:
        """End the transaction; its marker is written after the answer."""
        version = self._partition.version
        request = client_requests.end_transaction(
            self.identity, is_commit=outcome == COMMIT, transaction_version=version
        )
        self.identity = self._partition.ask(self._coordinator, request)
        self._is_registered = False
        if version > 1:
            self._sequence = 0


def offset_request(producer: ProducerIdentity, group: str, version: int, records: KeysAndValues) -> Request[None]:
    """Return the request that commits an offset, in a transaction or not, or deletes it; a value is its digits."""
    ((key, value),) = records
    partition = (key.decode(), 0)
    if value is None:
        return delete_offset(group, partition)
    offsets = {partition: int(value)}
    if producer.transactional_id is None:
        return commit_offsets(group, offsets)
    return client_requests.commit_in_transaction(producer, group, offsets, version)
