"""librdkafka producers that write down everything they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer

from harness.errors import HarnessError
from harness.history import HEADER_OP, HEADER_TXN

if TYPE_CHECKING:
    from harness.history import History

OPERATION_TIMEOUT_S = 20.0

BASE_CONFIG = {
    "acks": "all",
    "linger.ms": 0,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "delivery.timeout.ms": int(OPERATION_TIMEOUT_S * 1000),
    "log_level": 0,
}


@dataclass(frozen=True)
class ProducerSpec:
    """Who produces: ``part`` is payload or filler; transactional where there is a ``transactional_id``."""

    process: str
    part: str
    transactional_id: str | None = None


class Producer:
    """One client process. Methods block until the broker answered, but for `send`."""

    def __init__(self, bootstrap: str, spec: ProducerSpec, history: History) -> None:
        """Connect lazily; a transactional producer has `init` to be called first.

        The plain producer is not idempotent: with a producer.id.expiration.ms of seconds brokers forget it
        whenever it pauses.
        """
        config: dict[str, Any] = {**BASE_CONFIG, "bootstrap.servers": bootstrap}
        if spec.transactional_id is not None:
            config["transactional.id"] = spec.transactional_id
        self._spec = spec
        self._history = history
        self._producer = LibrdkafkaProducer(config)
        self._txn = 0
        self._errors: list[str] = []
        self._last_offset = -1
        self.phase = "before"

    def init(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        self._bracket("init", lambda: self._producer.init_transactions(OPERATION_TIMEOUT_S))

    def begin(self) -> None:
        """Begin the next transaction."""
        self._txn += 1
        self._bracket("begin", self._producer.begin_transaction)

    def commit(self) -> None:
        """Commit the open transaction, once everything in it is acknowledged."""
        self.flush()
        self._bracket("commit", lambda: self._producer.commit_transaction(OPERATION_TIMEOUT_S))

    def abort(self) -> None:
        """Abort the open transaction.

        Flushes first: an abort straight after a produce ends in a fatal INVALID_TXN_STATE (librdkafka 2.16
        against 3.9 and 4.2).
        """
        self.flush()
        self._bracket("abort", lambda: self._producer.abort_transaction(OPERATION_TIMEOUT_S))

    def send(self, topic: str, key: str, value: str | None) -> None:
        """Produce without waiting; the completion is recorded when the broker has answered."""
        event = self._history.invoke(
            f="produce",
            **self._who(),
            topic=topic,
            partition=0,
            key=key,
            value=value,
            tombstone=value is None,
        )
        headers: list[tuple[str, str | bytes | None]] = [(HEADER_OP, str(event["op"]).encode())]
        if self._spec.transactional_id is not None:
            headers.append((HEADER_TXN, f"{self._spec.transactional_id}/{self._txn}".encode()))

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._last_offset = message.offset()
                self._history.complete("ok", event, offset=message.offset())
            else:
                # A delivery that timed out may have been written all the same.
                self._history.complete("info", event, error=str(error))
                self._errors.append(str(error))

        self._producer.produce(
            topic, key=key.encode(), value=None if value is None else value.encode(), partition=0,
            headers=headers, on_delivery=delivered,
        )  # fmt: skip
        self._producer.poll(0)

    def put(self, topic: str, key: str, value: str | None) -> int:
        """Produce and wait; return the record's offset. Raises `HarnessError` where it is not acknowledged."""
        self.send(topic, key, value)
        self.flush()
        return self._last_offset

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises `HarnessError` for what was not."""
        left = self._producer.flush(OPERATION_TIMEOUT_S)
        if left or self._errors:
            told = "; ".join(self._errors) or f"{left} records are not acknowledged after {OPERATION_TIMEOUT_S:g} s"
            self._errors.clear()
            raise HarnessError(f"{self._spec.process}: {told}")

    def _bracket(self, f: str, operation: Any) -> None:
        event = self._history.invoke(f=f, **self._who())
        try:
            operation()
        except KafkaException as error:
            # Only what the client library calls abortable did certainly not happen.
            kind = "fail" if error.args[0].txn_requires_abort() else "info"
            self._history.complete(kind, event, error=str(error))
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
