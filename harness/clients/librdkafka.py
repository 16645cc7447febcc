"""librdkafka by way of confluent-kafka: transactions v1, whatever the brokers offer (seen up to 2.16)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from harness.clients import OPERATION_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.clients import Answered, ClientSpec, MakeProducer
    from harness.replica import TopicPartition

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
    yield lambda transactional_id: LibrdkafkaProducer(spec.bootstrap, transactional_id)


class LibrdkafkaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, bootstrap: str, transactional_id: str | None) -> None:
        """Make the producer. Without a transactional id it is not idempotent.

        With a producer.id.expiration.ms of seconds brokers forget an idempotent one whenever it pauses.
        """
        config: dict[str, Any] = {**CONFIG, "bootstrap.servers": bootstrap}
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
        """Send a record; its answer is told by this thread, in a later `send` or in `flush`."""

        def delivered(error: Any, message: Any) -> None:
            answered(None if error is None else str(error), message.offset() if error is None else -1)

        self._producer.produce(
            to[0], key=key.encode(), value=None if value is None else value.encode(), partition=to[1],
            headers=[*headers], on_delivery=delivered,
        )  # fmt: skip
        self._producer.poll(0)

    def flush(self) -> int:
        """Wait for every answer."""
        return self._producer.flush(OPERATION_TIMEOUT_S)


def _told(operation: Callable[[], object]) -> None:
    try:
        operation()
    except KafkaException as error:
        # Only what the library calls abortable did certainly not happen.
        raise ClientError(str(error), certainly=error.args[0].txn_requires_abort()) from error
