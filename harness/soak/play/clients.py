"""The clients of a round: each plays its operations on a client library, and records them with their outcomes.

A request that a library refuses does not end the round. A transactional client whose operation failed continues with a
new producer of the same id, which aborts the transaction that the former producer left open.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from harness.clients import GroupConsumer, Library, LibraryGroups, LibraryProducer
from harness.clients.recorded import OperationFailedError, RecordingProducer, record
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.run_folder.history import History
from harness.schedules import operations as ops
from harness.schedules.scenario import Phase
from harness.schedules.schedule import RoundClient

MOST_UNANSWERED = 5_000
"""A client outside of transactions waits for its answers only where so many are due, which is more than it writes in a
round: a partition without a leader would hold up all others else, for as long as a message takes to time out."""
POLL_S = 1.0
MOST_POLLS = 4
"""Of a visit to a group: a member joins first, and then receives records."""
FILLER_KEY = "filler"


@dataclass
class ClientProcess:
    """One client. ``numbers``: counts the transactions of an id, over all clients that share it."""

    client: RoundClient
    library: Library
    history: History
    numbers: Iterator[int]
    part: str = "payload"
    _producer: RecordingProducer | None = None

    def play(self, operation: ops.Operation) -> None:
        """Execute an operation. The end of a transaction that has failed, for example, is passed over."""
        try:
            match operation:
                case ops.Write(_, key, deletes, topic, partition):
                    self._write((topic, partition), key, deletes=deletes)
                case ops.End(_, outcome):
                    self._end(outcome)
                case ops.Die():
                    self._producer = None
                case ops.SendOffset():
                    self._send_offset(operation)
                case ops.CommitOffset(_, group, topic, partition, offset):
                    self._of_group(operation, lambda groups: groups.commit(group, {(topic, partition): offset}))
                case ops.VisitGroup(_, group, topic, protocol):
                    self._of_group(operation, lambda groups: _visit(groups.consumer(group, topic, protocol)))
                case ops.DeleteGroup(_, group):
                    self._of_group(operation, lambda groups: groups.delete(group))
        except OperationFailedError:
            self._producer = None

    def fill(self, partitions: Sequence[TopicPartition]) -> None:
        """Write a record to each partition: cleaners pass only where something new was written."""
        try:
            for tp in partitions:
                self._write(tp, FILLER_KEY, deletes=False)
            self._flush()
        except OperationFailedError:
            self._producer = None

    def close(self) -> None:
        """End the open transaction, by an abort or by a new producer of the same id; wait for all answers."""
        with suppress(OperationFailedError):
            self._end(ops.ABORT)
            self._flush()
        self._producer = None
        if self.client.transactional_id is not None:
            with suppress(OperationFailedError):
                self._begun(is_open=False)
            self._producer = None

    def _flush(self) -> None:
        if self._producer is not None:
            # An idempotent producer that brokers have forgotten fails for good (OUT_OF_ORDER_SEQUENCE_NUMBER).
            self._producer.flush()

    def _make(self, transactional_id: str | None) -> LibraryProducer:
        if self.client.is_idempotent:
            if self.library.idempotent is None:
                raise HarnessError(f"{self.client.library} has no idempotent producer outside of transactions here")
            return self.library.idempotent()
        if transactional_id is None and self.library.once is not None:
            # With copies that are appended later, nobody knows which value of a key is the last.
            return self.library.once()
        return self.library.producer(transactional_id)

    def _begun(self, *, is_open: bool = True) -> RecordingProducer:
        """Return the producer; ``is_open``: with an open transaction, if it is transactional."""
        client, producer = self.client, self._producer
        if producer is None:
            producer = RecordingProducer(
                self._make, self.history, client.name, self.part, client.transactional_id, numbers=self.numbers
            )
            if client.transactional_id is not None:
                producer.init()
            self._producer = producer
        if is_open and client.transactional_id is not None and not producer.is_in_transaction:
            producer.begin()
        return producer

    def _write(self, to: TopicPartition, key: str, *, deletes: bool) -> None:
        producer = self._begun()
        producer.send(*to, key, None if deletes else "", is_numbered=True)
        if not producer.is_in_transaction and producer.unanswered >= MOST_UNANSWERED:
            self._flush()

    def _end(self, outcome: str) -> None:
        producer = self._producer
        if producer is not None and producer.is_in_transaction:
            (producer.commit if outcome == ops.COMMIT else producer.abort)()

    def _send_offset(self, operation: ops.SendOffset) -> None:
        producer, groups = self._begun(), self.library.groups
        send: Callable[..., None] | None = getattr(producer.library_producer, "send_offsets", None)
        if groups is None or send is None:
            raise HarnessError(f"{self.client.library} commits no offsets in transactions here")
        offsets = {(operation.topic, operation.partition): operation.offset}
        producer.record(operation=lambda: send(operation.group, offsets), **_fields_of(operation))

    def _of_group(self, operation: ops.Operation, act: Callable[[LibraryGroups], None]) -> None:
        groups = self.library.groups
        if groups is None:
            raise HarnessError(f"{self.client.library} has no consumer groups here")
        fields = {"process": self.client.name, "part": self.part, "phase": Phase.BEFORE}
        ids = {"transactional_id": self.client.transactional_id, "txn": None}
        record(self.history, lambda: act(groups), **fields, **ids, **_fields_of(operation))


def _visit(member: GroupConsumer) -> None:
    with closing(member):
        for _ in range(MOST_POLLS):
            if member.poll(POLL_S):
                break


def _fields_of(operation: ops.Operation) -> dict[str, Any]:
    """Return what the history has of an operation of a group. An offset of a group is not ``offset``: of a record."""
    fields = {name: value for name, value in vars(operation).items() if name in {"group", "protocol"}}
    if isinstance(operation, ops.SendOffset | ops.CommitOffset):
        fields |= {"input": f"{operation.topic}-{operation.partition}", "committed": operation.offset}
    return {"f": ops.name_of(type(operation)).replace("-", " "), **fields}
