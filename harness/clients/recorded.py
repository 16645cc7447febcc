"""Producers that write down everything they do, whatever library they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.clients import OPERATION_TIMEOUT_S, ClientError
from harness.errors import HarnessError
from harness.run_folder.history import HEADER_OP, HEADER_TXN

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.clients import MakeProducer
    from harness.run_folder.history import History


@dataclass(frozen=True)
class ProducerSpec:
    """Who produces: ``part`` is payload or filler; transactional where there is a ``transactional_id``."""

    process: str
    part: str
    transactional_id: str | None = None


class Producer:
    """One client process. Methods block until the broker answered, but for `send`."""

    def __init__(self, make: MakeProducer, spec: ProducerSpec, history: History) -> None:
        """Make it; a transactional producer has `init` to be called first."""
        self._spec = spec
        self._history = history
        self._make = make
        self._producer = make(spec.transactional_id)
        self._txn = history.last_txn(spec.transactional_id)
        self._errors: list[str] = []
        self._last_offset = -1
        self.phase = "before"

    def init(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        self._bracket("init", self._producer.init_transactions)

    def renew(self) -> None:
        """Go on with a new producer after an error; what was open is aborted, and its records may be anything."""
        self._errors.clear()
        self._producer = self._make(self._spec.transactional_id)
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

    def send(self, topic: str, partition: int, key: str, value: str | None) -> None:
        """Produce without waiting; the completion is recorded when the broker has answered."""
        event = self._history.invoke(
            f="produce",
            **self._who(),
            topic=topic,
            partition=partition,
            key=key,
            value=value,
            tombstone=value is None,
        )
        headers = [(HEADER_OP, str(event["op"]).encode())]
        if self._spec.transactional_id is not None:
            headers.append((HEADER_TXN, f"{self._spec.transactional_id}/{self._txn}".encode()))

        def answered(error: str | None, offset: int) -> None:
            if error is None:
                self._last_offset = offset
                self._history.complete("ok", event, offset=offset)
            else:
                # A delivery that timed out may have been written all the same.
                self._history.complete("info", event, error=error)
                self._errors.append(error)

        self._producer.send((topic, partition), key, value, headers, answered)

    def put(self, topic: str, partition: int, key: str, value: str | None) -> int:
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
            raise HarnessError(f"{self._spec.process}: {failures}")

    def _bracket(self, f: str, operation: Callable[[], None]) -> None:
        event = self._history.invoke(f=f, **self._who())
        try:
            operation()
        except ClientError as error:
            self._history.complete("fail" if error.certainly else "info", event, error=str(error))
            raise HarnessError(f"{self._spec.process}: {f} failed: {error}") from error
        self._history.complete("ok", event)

    def _who(self) -> dict[str, Any]:
        transactional = self._spec.transactional_id is not None
        return {
            "process": self._spec.process,
            "part": self._spec.part,
            "phase": self.phase,
            "transactional_id": self._spec.transactional_id,
            "txn": self._txn if transactional else None,
        }
