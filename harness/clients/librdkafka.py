"""librdkafka by way of confluent-kafka: transactions v1, whatever the brokers offer (seen up to 2.16)."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from harness.clients import OPERATION_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.brokers.protocol.replica import TopicPartition
    from harness.clients import Answered, ClientSpec, MakeProducer

CONFIG = {
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


@contextmanager
def opened(spec: ClientSpec) -> Iterator[MakeProducer]:
    """Give what makes librdkafka producers; each connects when it is first used."""
    login = spec.security.for_librdkafka() if spec.security else {}
    yield lambda transactional_id: LibrdkafkaProducer(spec.bootstrap, transactional_id, login)


class LibrdkafkaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, bootstrap: str, transactional_id: str | None, login: Mapping[str, str]) -> None:
        """Make the producer. Without a transactional id it is not idempotent.

        With a producer.id.expiration.ms of seconds brokers forget an idempotent one whenever it pauses.
        """
        config: dict[str, Any] = {**CONFIG, **login, "bootstrap.servers": bootstrap}
        if transactional_id is not None:
            config |= {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._producer = Producer(config)

    def init_transactions(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        _told(lambda: self._producer.init_transactions(OPERATION_TIMEOUT_S))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        _told(self._producer.begin_transaction)

    def commit_transaction(self) -> None:
        """Commit the open transaction."""
        _told(lambda: self._producer.commit_transaction(OPERATION_TIMEOUT_S))

    def abort_transaction(self) -> None:
        """Abort the open transaction."""
        _told(lambda: self._producer.abort_transaction(OPERATION_TIMEOUT_S))

    def send(
        self, to: TopicPartition, key: str, value: str | None, headers: list[tuple[str, bytes]], answered: Answered
    ) -> None:
        """Send a record; its acknowledgement is recorded by this thread, in a later `send` or in `flush`."""

        def delivered(error: Any, message: Any) -> None:
            answered(None if error is None else str(error), message.offset() if error is None else -1)

        self._producer.produce(
            to[0], key=key.encode(), value=None if value is None else value.encode(), partition=to[1],
            headers=[*headers], on_delivery=delivered,
        )  # fmt: skip
        self._poll(0)

    def flush(self) -> int:
        """Wait for every answer.

        Not by the library's own flush: where a fatal error is raised it goes on to call `answered` with that
        exception pending (confluent-kafka 2.16: seen as a SystemError; a run that hung beside it is ascribed to it).
        """
        deadline_s = time.monotonic() + OPERATION_TIMEOUT_S
        while (left := len(self._producer)) and (left_s := deadline_s - time.monotonic()) > 0:
            self._poll(left_s)
        return left

    def _poll(self, timeout_s: float) -> None:
        """Serve acknowledgements. A fatal error raised here is raised again by every operation that it concerns."""
        with suppress(KafkaException):
            self._producer.poll(timeout_s)


def _told(operation: Callable[[], object]) -> None:
    try:
        operation()
    except KafkaException as error:
        # Only what the library calls abortable did certainly not happen.
        raise ClientError(str(error), certainly=error.args[0].txn_requires_abort()) from error
