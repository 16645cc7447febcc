"""A producer of simulated brokers, on the cluster's clock; `harness.systems` has their consumer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from harness.broker_files.segments.records import ABORT, COMMIT, Record
from harness.clients import OPERATION_TIMEOUT_S, Answered, ClientError, ClientSpec, Headers, Library, TransactionStep
from harness.errors import WaitTimeoutError
from harness.kafka_api import TopicPartition
from harness.models.cluster.cluster import SimCluster
from harness.models.cluster.partition import SimPartition
from harness.models.cluster.transactions import Transactional, TransactionCoordinator
from harness.models.log.batch import ModelBatch


@dataclass(frozen=True)
class SimulatedClient:
    """Opens a simulated library. ``raises_epoch``: whether it has transactions of version 2, like the Java client."""

    cluster: SimCluster
    coordinator: TransactionCoordinator
    raises_epoch: bool

    def opened(self, _spec: ClientSpec) -> AbstractContextManager[Library]:
        """Return the library."""
        return nullcontext(Library(partial(SimulatedProducer, self)))


@dataclass
class _Sent:
    """A record without an answer; ``remake`` makes its batch again for the current end of the log."""

    partition: SimPartition
    batch: ModelBatch
    remake: Callable[[], ModelBatch]
    answered: Answered


@dataclass
class SimulatedProducer:
    """Implements `harness.clients.LibraryProducer`: one batch for each record, idempotent if it is transactional."""

    client: SimulatedClient
    transactional_id: str | None
    owner: Transactional | None = None
    epoch: int = -1
    sequences: dict[SimPartition, int] = field(default_factory=dict)
    unanswered: list[_Sent] = field(default_factory=list)

    def transact(self, step: TransactionStep) -> None:
        """Obtain a producer id, which aborts an open transaction, or end one; no broker learns of a begin."""
        match step:
            case "init":
                assert self.transactional_id is not None  # noqa: S101  (only transactional producers are asked)
                coordinator = self.client.coordinator
                self.owner = coordinator.init(self.transactional_id, raises_epoch=self.client.raises_epoch)
                self.epoch = self.owner.epoch
                self._wait_ended(self.owner)
            case "commit" | "abort":
                assert self.owner is not None  # noqa: S101  (it has begun a transaction)
                self._raise_if_fenced()
                self.client.coordinator.end(self.owner, COMMIT if step == "commit" else ABORT)
                self.epoch = self.owner.epoch
                if self.owner.raises_epoch:
                    self.sequences.clear()

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:
        """Append a record to its partition's leader."""
        partition, missing = self.client.cluster.partitions.get(to), f"{to[0]}-{to[1]} does not exist"
        if partition is None:
            raise ClientError(missing, certainly=True)
        if self.owner is not None:
            self._wait_ended(self.owner)
        self._wait(lambda: partition.is_deleted or self._has_leader(partition), "a leader")
        if partition.is_deleted:
            raise ClientError(missing, certainly=True)
        if self.owner is not None:
            # Another producer may have begun during the waits.
            self._raise_if_fenced()
            self.client.coordinator.add(self.owner, partition)
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + 1
        make = partial(self._batch, partition, key.encode() if isinstance(key, str) else key, value, headers, sequence)
        batch = make()
        self.client.cluster.append(partition, batch)
        self.unanswered.append(_Sent(partition, batch, make, reply))

    def flush(self) -> int:
        """Wait until every in-sync replica has all records (``acks=all``)."""
        clock = self.client.cluster.clock
        try:
            clock.wait_until(self._are_stored, OPERATION_TIMEOUT_S, "records to be acknowledged")
        except WaitTimeoutError:
            return len(self.unanswered)
        for sent in self.unanswered:
            sent.answered(None, sent.batch.base_offset)
        self.unanswered.clear()
        return 0

    def _are_stored(self) -> bool:
        """Return whether all records are stored, and send records again that a leader has lost."""
        is_done = True
        for sent in list(self.unanswered):
            is_deleted = sent.partition.is_deleted
            stored = None if is_deleted else sent.partition.is_stored(sent.batch)
            error = "the topic was deleted" if is_deleted else self._fenced_text if stored is None else None
            if error is not None:
                self.unanswered.remove(sent)
                sent.answered(ClientError(error), -1)
                continue
            if stored is None and self._has_leader(sent.partition):
                sent.batch = sent.remake()
                self.client.cluster.append(sent.partition, sent.batch)
            is_done &= bool(stored)
        return is_done

    def _has_leader(self, partition: SimPartition) -> bool:
        leader = partition.leader_id
        return leader is not None and self.client.cluster.is_reachable(leader)

    def _batch(
        self, partition: SimPartition, key: bytes, value: str | None, headers: Headers, sequence: int
    ) -> ModelBatch:
        base, now_ms, owner = partition.leader.log_end, self.client.cluster.clock.time_ms(), self.owner
        content = None if value is None else value.encode()
        producer_id, epoch, first = (-1, -1, -1) if owner is None else (owner.producer_id, self.epoch, sequence)
        return ModelBatch(
            base_offset=base,
            last_offset=base,
            records=(Record(base, now_ms, key, content, tuple(headers)),),
            max_timestamp_ms=now_ms,
            leader_epoch=partition.replication.leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=first,
            transactional=owner is not None,
        )

    @property
    def _fenced_text(self) -> str | None:
        """The error if another producer has begun with the transactional id (KIP-98)."""
        is_fenced = self.owner is not None and self.owner.epoch != self.epoch
        return f"another producer has {self.transactional_id} now" if is_fenced else None

    def _raise_if_fenced(self) -> None:
        if text := self._fenced_text:
            raise ClientError(text, certainly=True)

    def _wait_ended(self, owner: Transactional) -> None:
        coordinator = self.client.coordinator
        self._wait(lambda: not coordinator.is_ending(owner), "the last transaction's markers")

    def _wait(self, condition: Callable[[], bool], description: str) -> None:
        try:
            self.client.cluster.clock.wait_until(condition, OPERATION_TIMEOUT_S, description)
        except WaitTimeoutError as error:
            raise ClientError(str(error), certainly=True) from error
