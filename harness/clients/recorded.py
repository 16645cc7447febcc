"""A producer of any library that records every operation in the history."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.clients import NO_OFFSET, OPERATION_TIMEOUT_S, TIMED_OUT, ClientError, MakeProducer, TransactionStep
from harness.errors import HarnessError
from harness.run_folder.history import HEADER_OP, HEADER_TXN, History, key_fields


class OperationFailedError(HarnessError):
    """An operation of a client process that failed; the history contains it. ``refusal``: as in `ClientError`."""

    def __init__(self, process: str, problem: str, refusal: str = "") -> None:
        super().__init__(f"{process}: {problem}")
        self.process, self.refusal = process, refusal


def record(history: History, operation: Callable[[], None], **fields: Any) -> None:
    """Execute and record an operation. Raises `OperationFailedError` if the library reports an error."""
    event = history.invoke(**fields)
    try:
        operation()
    except ClientError as error:
        raise _failed(history, event, error) from error
    history.complete("ok", event)


def _failed(history: History, event: dict[str, Any], error: ClientError) -> OperationFailedError:
    """Record the failure of an operation, and return it as an exception."""
    history.complete("fail" if error.certainly else "info", event, error=str(error))
    return OperationFailedError(event["process"], f"{event['f']} failed: {error}", error.refusal)


@dataclass
class _Answers:
    """The answers to records. A missing answer keeps this object in memory, and not the producer."""

    unanswered: int = 0
    last_offset: int = NO_OFFSET
    errors: list[ClientError] = field(default_factory=list)


@dataclass
class RecordingProducer:
    """One client process. All methods except `send` block until the broker has answered.

    ``part``: payload, filler or ballast. With a ``transactional_id`` it is transactional, and `init` must be called
    first. ``numbers``: of the transactions of an id that several producers share; operations between two transactions
    then have no number in the history.
    """

    make: MakeProducer
    history: History
    process: str
    part: str
    transactional_id: str | None = None
    phase: str = "before"
    numbers: Iterator[int] | None = None

    def __post_init__(self) -> None:
        self.library_producer = self.make(self.transactional_id)
        self._txn = None if self.numbers else self.history.last_txn(self.transactional_id)
        self._answers = _Answers()

    @property
    def is_in_transaction(self) -> bool:
        """The producer, which shares its id, has an open transaction."""
        return self._txn is not None

    @property
    def unanswered(self) -> int:
        """The number of records without an answer."""
        return self._answers.unanswered

    def init(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        self._transact("init")

    def renew(self) -> None:
        """Continue with a new producer after an error; the open transaction is aborted."""
        self._answers = _Answers()
        self.library_producer = self.make(self.transactional_id)
        self.init()

    def begin(self) -> None:
        """Begin the next transaction."""
        self._txn = next(self.numbers) if self.numbers else (self._txn or 0) + 1
        self._transact("begin")

    def commit(self) -> None:
        """Commit the open transaction after all its records are acknowledged."""
        self._end("commit")

    def abort(self) -> None:
        """Abort the open transaction, after a flush.

        An abort immediately after a produce ends in a fatal INVALID_TXN_STATE (librdkafka 2.16 with 3.9 and 4.2).
        """
        self._end("abort")

    def _end(self, step: TransactionStep) -> None:
        self.flush()
        self._transact(step)
        if self.numbers:
            self._txn = None

    def _transact(self, step: TransactionStep) -> None:
        self.record(step, lambda: self.library_producer.transact(step))

    def send(
        self, topic: str, partition: int, key: str | bytes, value: str | None, *, is_numbered: bool = False
    ) -> None:
        """Produce; the answer is recorded when it comes. Raises `OperationFailedError` for a rejected record.

        ``is_numbered``: the value is the number of the operation, which the history has anyway.
        """
        event = self.history.invoke(
            f="produce",
            **self._common_fields(),
            topic=topic,
            partition=partition,
            **key_fields(key),
            **({} if is_numbered else {"value": value}),
            tombstone=value is None,
        )
        number = str(event["op"])
        headers = [(HEADER_OP, number.encode())]
        if self.transactional_id is not None:
            headers.append((HEADER_TXN, f"{self.transactional_id}/{self._txn}".encode()))
        content = number if is_numbered and value is not None else value
        answers, history = self._answers, self.history

        def answered(error: ClientError | None, offset: int) -> None:
            answers.unanswered -= 1
            answers.last_offset = offset
            if error is not None:
                # A record whose delivery timed out may have been written.
                history.complete("info", event, error=str(error))
                answers.errors.append(error)
            elif offset == NO_OFFSET:
                # The record is written, but without its offset the last value of the key is unknown.
                history.complete("info", event, error="acknowledged as a duplicate, without an offset")
            else:
                history.complete("ok", event, offset=offset)

        answers.unanswered += 1
        try:
            self.library_producer.send((topic, partition), key, content, headers, answered)
        except ClientError as error:
            raise _failed(history, event, error) from error

    def put(self, topic: str, partition: int, key: str | bytes, value: str | None) -> int:
        """Produce and wait; return the record's offset. Raises `HarnessError` if it is not acknowledged."""
        self.send(topic, partition, key, value)
        self.flush()
        return self._answers.last_offset

    def flush(self) -> None:
        """Wait until all records are acknowledged. Raises `OperationFailedError` for other records."""
        remaining = self.library_producer.flush()
        if remaining or self._answers.errors:
            count = f"{remaining} records are not acknowledged after {OPERATION_TIMEOUT_S:g} s"
            errors, self._answers.errors = self._answers.errors, []
            refusal = next((error.refusal for error in errors if error.refusal), TIMED_OUT if remaining else "")
            raise OperationFailedError(self.process, "; ".join(dict.fromkeys(map(str, errors))) or count, refusal)

    def record(self, f: str, operation: Callable[[], None], **fields: Any) -> None:
        """Execute and record an operation of this producer, with more ``fields``. Raises as `record` does."""
        record(self.history, operation, f=f, **self._common_fields(), **fields)

    def _common_fields(self) -> dict[str, Any]:
        return {
            "process": self.process,
            "part": self.part,
            "phase": self.phase,
            "transactional_id": self.transactional_id,
            "txn": None if self.transactional_id is None else self._txn,
        }
