"""The clients of a round: each plays its operations on a client library, and writes down all that it knows of them.

Nothing that a library refuses ends a round. A transactional client whose operation failed goes on with a new producer
of the same id; what its former one left open is aborted by that, or by whoever starts next with that id.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.clients import NO_OFFSET, ClientError
from harness.errors import HarnessError
from harness.run_folder.history import HEADER_OP, HEADER_TXN
from harness.schedules.operations.clients import (
    COMMIT,
    CommitOffset,
    DeleteGroup,
    Die,
    End,
    SendOffset,
    VisitGroup,
    Write,
)
from harness.schedules.scenario import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.clients import Library, LibraryProducer
    from harness.kafka_api.messages import TopicPartition
    from harness.run_folder.history import History
    from harness.schedules.operations.operation import Operation
    from harness.schedules.plan import RoundClient

MOST_UNANSWERED = 5_000
"""A client outside of transactions waits for its answers only where so many are due, which is more than it writes in a
round: a partition without a leader would hold up all others else, for as long as a message takes to time out."""
POLL_S = 1.0
FILLER_KEY = "filler"


@dataclass
class ClientProcess:
    """One client. ``numbers``: counts the transactions of an id, over all clients that share it."""

    client: RoundClient
    library: Library
    history: History
    numbers: Iterator[int]
    part: str = "payload"
    _producer: LibraryProducer | None = None
    _txn: int | None = None
    _failed: bool = False
    _unanswered: int = 0

    def play(self, operation: Operation) -> None:
        """Do it. What does not fit any more, as the end of a transaction that has failed, is passed over."""
        try:
            match operation:
                case Write():
                    self._write((operation.topic, operation.partition), operation.key, deletes=operation.deletes)
                case End():
                    self._end(operation.outcome)
                case Die():
                    self._producer = self._txn = None
                case SendOffset():
                    self._send_offset(operation)
                case CommitOffset() | VisitGroup() | DeleteGroup():
                    self._of_groups(operation)
        except _FailedError:
            self._producer = self._txn = None

    def fill(self, partitions: Sequence[TopicPartition]) -> None:
        """Write a record to each partition: cleaners pass only where something new was written."""
        try:
            for tp in partitions:
                self._write(tp, FILLER_KEY, deletes=False)
            self.flush()
        except _FailedError:
            self._producer = None

    def close(self) -> None:
        """End what is open, by an abort or by a new producer of the same id; wait for all answers."""
        try:
            self._end("abort")
            self.flush()
        except _FailedError:
            self._txn = None
        finally:
            # An answer that never comes refers to this process for good, and by it to the producer and its threads.
            self._producer = None
        if self.client.transactional_id is not None:
            with suppress(_FailedError):
                self._ready()
            self._producer = None

    def flush(self) -> None:
        """Wait for the answers to all that was sent."""
        if self._producer is not None and (self._producer.flush() or self._failed):
            self._failed = False
            # An idempotent producer that brokers have forgotten fails for good (OUT_OF_ORDER_SEQUENCE_NUMBER).
            raise _FailedError

    def _ready(self) -> LibraryProducer:
        """Return the producer, which is made anew where there is none."""
        if self._producer is None:
            made = self._make()
            if self.client.transactional_id is not None:
                self._bracket("init", made.init_transactions)
            self._producer, self._failed, self._unanswered = made, False, 0
        return self._producer

    def _make(self) -> LibraryProducer:
        if self.client.is_idempotent:
            if self.library.idempotent is None:
                raise HarnessError(f"{self.client.library} has no idempotent producer outside of transactions here")
            return self.library.idempotent()
        if self.client.transactional_id is None and self.library.once is not None:
            # With copies that are appended later, nobody knows which value of a key is the last.
            return self.library.once()
        return self.library.producer(self.client.transactional_id)

    def _begun(self) -> LibraryProducer:
        producer = self._ready()
        if self.client.transactional_id is not None and self._txn is None:
            self._txn = next(self.numbers)
            self._bracket("begin", producer.begin_transaction)
        return producer

    def _write(self, to: TopicPartition, key: str, *, deletes: bool) -> None:
        producer = self._begun()
        event = self.history.invoke(
            f="produce", **self._who(), topic=to[0], partition=to[1], key=key, tombstone=deletes
        )
        headers = [(HEADER_OP, str(event["op"]).encode())]
        if self._txn is not None:
            headers.append((HEADER_TXN, f"{self.client.transactional_id}/{self._txn}".encode()))

        def answered(error: str | None, offset: int) -> None:
            self._unanswered -= 1
            if error is None and offset == NO_OFFSET:
                # It is written, and only its offset would tell which value of the key is the last.
                self.history.complete("info", event, error="acknowledged as a duplicate, without an offset")
            elif error is None:
                self.history.complete("ok", event, offset=offset)
            else:
                # It may have been written all the same.
                self.history.complete("info", event, error=error)
                self._failed = True

        self._unanswered += 1
        try:
            producer.send(to, key, None if deletes else str(event["op"]), headers, answered)
        except ClientError as error:
            self.history.complete("fail" if error.certainly else "info", event, error=str(error))
            raise _FailedError from error
        if self._txn is None and self._unanswered >= MOST_UNANSWERED:
            self.flush()

    def _end(self, outcome: str) -> None:
        producer = self._producer
        if producer is None or self._txn is None:
            return
        self.flush()
        self._bracket(outcome, producer.commit_transaction if outcome == COMMIT else producer.abort_transaction)
        self._txn = None

    def _send_offset(self, operation: SendOffset) -> None:
        producer, groups = self._begun(), self.library.groups
        send: Callable[..., None] | None = getattr(producer, "send_offsets", None)
        if groups is None or send is None:
            raise HarnessError(f"{self.client.library} commits no offsets in transactions here")
        offsets = {(operation.topic, operation.partition): operation.offset}
        self._bracket("send offset", lambda: send(operation.group, offsets), operation)

    def _of_groups(self, operation: CommitOffset | VisitGroup | DeleteGroup) -> None:
        groups = self.library.groups
        if groups is None:
            raise HarnessError(f"{self.client.library} has no consumer groups here")
        match operation:
            case CommitOffset():
                offsets = {(operation.topic, operation.partition): operation.offset}
                self._bracket("commit offset", lambda: groups.commit(operation.group, offsets), operation)
            case VisitGroup():

                def visit() -> None:
                    member = groups.consumer(operation.group, operation.topic, operation.protocol)
                    try:
                        member.poll(POLL_S)
                    finally:
                        member.close()

                self._bracket("visit group", visit, operation)
            case DeleteGroup():
                self._bracket("delete group", lambda: groups.delete(operation.group), operation)

    def _bracket(self, f: str, act: Callable[[], None], operation: Operation | None = None) -> None:
        more = {} if operation is None else {n: v for n, v in vars(operation).items() if n in {"group", "protocol"}}
        if isinstance(operation, SendOffset | CommitOffset):
            # Not ``offset``: that is of a record.
            more |= {"input": f"{operation.topic}-{operation.partition}", "committed": operation.offset}
        event = self.history.invoke(f=f, **self._who(), **more)
        try:
            act()
        except ClientError as error:
            self.history.complete("fail" if error.certainly else "info", event, error=str(error))
            raise _FailedError from error
        self.history.complete("ok", event)

    def _who(self) -> dict[str, Any]:
        return {
            "process": self.client.name,
            "part": self.part,
            "phase": Phase.BEFORE,
            "transactional_id": self.client.transactional_id,
            "txn": self._txn,
        }


class _FailedError(Exception):
    """The operation failed, and the history has it: go on with a new producer."""
