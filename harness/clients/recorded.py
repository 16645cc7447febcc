"""Producers that write down everything they do, whatever library they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.clients import OPERATION_TIMEOUT_S, ClientError
from harness.errors import HarnessError
from harness.run_folder.history import HEADER_OP, HEADER_TXN, key_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.clients import MakeProducer
    from harness.run_folder.history import History


@dataclass
class Producer:
    """One client process. Methods block until the broker answered, but for `send`.

    ``part`` is payload, filler or ballast. With a ``transactional_id`` it is transactional, and has `init` to be called
    first.
    """

    make: MakeProducer
    history: History
    process: str
    part: str
    transactional_id: str | None = None
    phase: str = "before"

    def __post_init__(self) -> None:
        """Make the library's producer."""
        self._producer = self.make(self.transactional_id)
        self._txn = self.history.last_txn(self.transactional_id)
        self._errors: list[str] = []
        self._last_offset = -1

    def init(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        self._bracket("init", self._producer.init_transactions)

    def renew(self) -> None:
        """Go on with a new producer after an error; what was open is aborted, and its records may be anything."""
        self._errors.clear()
        self._producer = self.make(self.transactional_id)
        self.init()

    def begin(self) -> None:
        """Begin the next transaction."""
        self._txn += 1
        self._bracket("begin", self._producer.begin_transaction)

    def commit(self) -> None:
        """Commit the open transaction, once everything in it is acknowledged."""
        self.flush()
        self._bracket("commit", self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort the open transaction.

        Flushes first: an abort straight after a produce ends in a fatal INVALID_TXN_STATE (librdkafka 2.16
        against 3.9 and 4.2).
        """
        self.flush()
        self._bracket("abort", self._producer.abort_transaction)

    def send(self, topic: str, partition: int, key: str | bytes, value: str | None) -> None:
        """Produce without waiting; the completion is recorded when the broker has answered."""
        event = self.history.invoke(
            f="produce",
            **self._who(),
            topic=topic,
            partition=partition,
            **key_fields(key),
            value=value,
            tombstone=value is None,
        )
        headers = [(HEADER_OP, str(event["op"]).encode())]
        if self.transactional_id is not None:
            headers.append((HEADER_TXN, f"{self.transactional_id}/{self._txn}".encode()))

        def answered(error: str | None, offset: int) -> None:
            if error is None:
                self._last_offset = offset
                self.history.complete("ok", event, offset=offset)
            else:
                # A delivery that timed out may have been written all the same.
                self.history.complete("info", event, error=error)
                self._errors.append(error)

        self._producer.send((topic, partition), key, value, headers, answered)

    def put(self, topic: str, partition: int, key: str | bytes, value: str | None) -> int:
        """Produce and wait; return the record's offset. Raises `HarnessError` where it is not acknowledged."""
        self.send(topic, partition, key, value)
        self.flush()
        return self._last_offset

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises `HarnessError` for what was not."""
        left = self._producer.flush()
        if left or self._errors:
            failures = "; ".join(self._errors) or f"{left} records are not acknowledged after {OPERATION_TIMEOUT_S:g} s"
            self._errors.clear()
            raise HarnessError(f"{self.process}: {failures}")

    def _bracket(self, f: str, operation: Callable[[], None]) -> None:
        event = self.history.invoke(f=f, **self._who())
        try:
            operation()
        except ClientError as error:
            self.history.complete("fail" if error.certainly else "info", event, error=str(error))
            raise HarnessError(f"{self.process}: {f} failed: {error}") from error
        self.history.complete("ok", event)

    def _who(self) -> dict[str, Any]:
        return {
            "process": self.process,
            "part": self.part,
            "phase": self.phase,
            "transactional_id": self.transactional_id,
            "txn": None if self.transactional_id is None else self._txn,
        }
