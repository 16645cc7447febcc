"""The producer that records every operation in the history, whatever library it uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.clients import NO_OFFSET, OPERATION_TIMEOUT_S, ClientError
from harness.errors import HarnessError
from harness.run_folder.history import HEADER_OP, HEADER_TXN, key_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.clients import LibraryProducer, MakeProducer
    from harness.run_folder.history import History


class OperationFailedError(HarnessError):
    """An operation of a client that failed; the history contains it."""


def record(history: History, operation: Callable[[], None], **fields: Any) -> None:
    """Do an operation and record it. Raises `OperationFailedError` where the library does not complete it."""
    event = history.invoke(**fields)
    try:
        operation()
    except ClientError as error:
        history.complete("fail" if error.certainly else "info", event, error=str(error))
        raise OperationFailedError(f"{fields['process']}: {fields['f']} failed: {error}") from error
    history.complete("ok", event)


@dataclass
class _Answers:
    """The answers to records. An answer that never comes keeps this object alive, and not the producer."""

    unanswered: int = 0
    last_offset: int = NO_OFFSET
    errors: list[str] = field(default_factory=list)


@dataclass
class RecordingProducer:
    """One client process. Methods block until the broker answered, but for `send`.

    ``part`` is payload, filler or ballast. With a ``transactional_id`` it is transactional, and `init` has to be called
    first. ``numbers``: counts the transactions of the id, where several producers share it; then the history names no
    transaction between two.
    """

    make: MakeProducer
    history: History
    process: str
    part: str
    transactional_id: str | None = None
    phase: str = "before"
    numbers: Iterator[int] | None = None

    def __post_init__(self) -> None:
        """Make the library's producer."""
        self._producer = self.make(self.transactional_id)
        self._txn = None if self.numbers else self.history.last_txn(self.transactional_id)
        self._answers = _Answers()

    @property
    def library_producer(self) -> LibraryProducer:
        """The library's producer."""
        return self._producer

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, of a producer that shares its id."""
        return self._txn is not None

    @property
    def unanswered(self) -> int:
        """How many records have no answer yet."""
        return self._answers.unanswered

    def init(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        self.record("init", self._producer.init_transactions)

    def renew(self) -> None:
        """Continue with a new producer after an error; the open transaction is aborted."""
        self._answers = _Answers()
        self._producer = self.make(self.transactional_id)
        self.init()

    def begin(self) -> None:
        """Begin the next transaction."""
        self._txn = next(self.numbers) if self.numbers else (self._txn or 0) + 1
        self.record("begin", self._producer.begin_transaction)

    def commit(self) -> None:
        """Commit the open transaction, once everything in it is acknowledged."""
        self._end("commit", self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort the open transaction.

        Flushes first: an abort straight after a produce ends in a fatal INVALID_TXN_STATE (librdkafka 2.16
        against 3.9 and 4.2).
        """
        self._end("abort", self._producer.abort_transaction)

    def _end(self, outcome: str, end: Callable[[], None]) -> None:
        self.flush()
        self.record(outcome, end)
        if self.numbers:
            self._txn = None

    def send(
        self, topic: str, partition: int, key: str | bytes, value: str | None, *, is_numbered: bool = False
    ) -> None:
        """Produce without waiting; the completion is recorded when the broker has answered.

        ``is_numbered``: a value is the number of the operation, which the history has anyway. Raises
        `OperationFailedError` where the library does not take the record.
        """
        event = self.history.invoke(
            f="produce",
            **self._who(),
            topic=topic,
            partition=partition,
            **key_fields(key),
            **({} if is_numbered else {"value": value}),
            tombstone=value is None,
        )
        headers = [(HEADER_OP, str(event["op"]).encode())]
        if self.transactional_id is not None:
            headers.append((HEADER_TXN, f"{self.transactional_id}/{self._txn}".encode()))
        content = str(event["op"]) if is_numbered and value is not None else value
        answers, history = self._answers, self.history

        def answered(error: str | None, offset: int) -> None:
            answers.unanswered -= 1
            answers.last_offset = offset
            if error is not None:
                # A delivery that timed out may have been written all the same.
                history.complete("info", event, error=error)
                answers.errors.append(error)
            elif offset == NO_OFFSET:
                # The record is written, and only its offset would tell which value of the key is the last.
                history.complete("info", event, error="acknowledged as a duplicate, without an offset")
            else:
                history.complete("ok", event, offset=offset)

        answers.unanswered += 1
        try:
            self._producer.send((topic, partition), key, content, headers, answered)
        except ClientError as error:
            history.complete("fail" if error.certainly else "info", event, error=str(error))
            raise OperationFailedError(f"{self.process}: produce failed: {error}") from error

    def put(self, topic: str, partition: int, key: str | bytes, value: str | None) -> int:
        """Produce and wait; return the record's offset. Raises `HarnessError` where it is not acknowledged."""
        self.send(topic, partition, key, value)
        self.flush()
        return self._answers.last_offset

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises `OperationFailedError` for records that were not."""
        remaining = self._producer.flush()
        if remaining or self._answers.errors:
            count = f"{remaining} records are not acknowledged after {OPERATION_TIMEOUT_S:g} s"
            failures = "; ".join(self._answers.errors) or count
            self._answers.errors.clear()
            raise OperationFailedError(f"{self.process}: {failures}")

    def record(self, f: str, operation: Callable[[], None], **fields: Any) -> None:
        """Do an operation of this producer and record it, with more ``fields``. Raises as `record` does."""
        record(self.history, operation, f=f, **self._who(), **fields)

    def _who(self) -> dict[str, Any]:
        return {
            "process": self.process,
            "part": self.part,
            "phase": self.phase,
            "transactional_id": self.transactional_id,
            "txn": None if self.transactional_id is None else self._txn,
        }
