"""librdkafka by way of confluent-kafka: transactions v1, whatever the brokers offer (seen up to 2.16)."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from harness.clients import NO_OFFSET, OPERATION_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, ClientError, Library
from harness.schedules.groups import CLASSIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.clients import Answered, ClientSpec
    from harness.kafka_api.messages import TopicPartition

CONNECTION = {
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
CONFIG = {**CONNECTION, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": int(OPERATION_TIMEOUT_S * 1000)}
IDEMPOTENT = {"enable.idempotence": "true"}
ONCE = {"message.send.max.retries": 0}
TRANSACTIONAL = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    # Offsets that a transaction sends wait for their group's coordinator without a bound, whatever time-out they are
    # given, and look for another one only when the connection to some broker changes (confluentinc/librdkafka#5456,
    # 2.16.0). So connections without traffic are closed, which is such a change.
    "connections.max.idle.ms": 5_000,
}
CONSUMER_CONFIG = {
    **CONNECTION,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
}
CLASSIC_CONFIG = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
"""Settings of members that with the new protocol are the brokers' (KIP-848)."""
CONSUMED_AT_ONCE = 1_000
COORDINATOR_MOVES = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,  # noqa: SLF001  (its own code, and public in spite of the name)
    }
)
"""What a commit is answered while a group's coordinator moves: it did not happen. librdkafka soon gives up on it."""
RETRY_S = 0.05


@contextmanager
def opened(spec: ClientSpec) -> Iterator[Library]:
    """Give what makes librdkafka producers and consumers; each connects when it is first used."""
    login = spec.security.for_librdkafka() if spec.security else {}
    with _log_to(spec.log_path, spec.run_id) as logger:
        common = {**login, "logger": logger}
        yield Library(
            lambda transactional_id: LibrdkafkaProducer(spec.bootstrap, transactional_id, common),
            LibrdkafkaGroups(spec.bootstrap, common),
            lambda: LibrdkafkaProducer(spec.bootstrap, None, {**common, **IDEMPOTENT}),
            lambda: LibrdkafkaProducer(spec.bootstrap, None, {**common, **ONCE}),
        )


@contextmanager
def _log_to(path: Path, run_id: str) -> Iterator[logging.Logger]:
    """Give a logger that writes to this file only: the library's fatal lines go to the terminal else."""
    logger = logging.getLogger(f"{__name__}.{run_id}")
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s librdkafka %(message)s"))
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()


class LibrdkafkaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, bootstrap: str, transactional_id: str | None, common: Mapping[str, Any]) -> None:
        """Make the producer. Without a transactional id it is not idempotent.

        With a producer.id.expiration.ms of seconds brokers forget an idempotent one whenever it pauses.
        """
        config: dict[str, Any] = {**CONFIG, **common, "bootstrap.servers": bootstrap}
        if transactional_id is not None:
            config |= {**TRANSACTIONAL, "transactional.id": transactional_id}
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
        self,
        to: TopicPartition,
        key: str | bytes,
        value: str | None,
        headers: list[tuple[str, bytes]],
        answered: Answered,
    ) -> None:
        """Send a record; its acknowledgement is recorded by this thread, in a later `send` or in `flush`."""

        def delivered(error: Any, message: Any) -> None:
            offset = message.offset() if error is None else None
            answered(None if error is None else str(error), NO_OFFSET if offset is None else offset)

        _told(
            lambda: self._producer.produce(
                to[0],
                key=key,
                value=None if value is None else value.encode(),
                partition=to[1],
                headers=[*headers],
                on_delivery=delivered,
            )
        )
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

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as part of the open transaction. Blocks until the group has a coordinator."""
        # Only a consumer makes the group's metadata; this one never connects.
        consumer = Consumer({"group.id": group, "bootstrap.servers": "127.0.0.1:9", "log_level": 0})
        try:
            member = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        _told(lambda: self._producer.send_offsets_to_transaction(_listed(offsets), member, OPERATION_TIMEOUT_S))

    def _poll(self, timeout_s: float) -> None:
        """Serve acknowledgements. A fatal error raised here is raised again by every operation that it concerns."""
        with suppress(KafkaException):
            self._producer.poll(timeout_s)


class LibrdkafkaGroups:
    """Implements `harness.clients.LibraryGroups`."""

    def __init__(self, bootstrap: str, common: Mapping[str, Any]) -> None:
        """Store where brokers are, login and logger; nothing is connected yet."""
        self._bootstrap, self._common = bootstrap, common
        self._config: Mapping[str, Any] = {**common, "bootstrap.servers": bootstrap}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as a consumer that is assigned its partitions."""
        consumer = Consumer({**CONSUMER_CONFIG, **self._config, "group.id": group})
        try:
            _told(lambda: _commit(consumer, _listed(offsets)))
        finally:
            consumer.close()

    def delete(self, group: str) -> None:
        """Delete a group without members."""
        admin = AdminClient({**CONNECTION, **self._config})
        (deleted,) = admin.delete_consumer_groups([group], request_timeout=OPERATION_TIMEOUT_S).values()
        _told(lambda: deleted.result(OPERATION_TIMEOUT_S))

    def producer(self, transactional_id: str) -> LibrdkafkaProducer:
        """Return a transactional producer."""
        return LibrdkafkaProducer(self._bootstrap, transactional_id, self._common)

    def consumer(self, group: str, topic: str, protocol: str) -> LibrdkafkaConsumer:
        """Return a consumer that joins the group."""
        own = {**(CLASSIC_CONFIG if protocol == CLASSIC else {}), "group.id": group, "group.protocol": protocol}
        return LibrdkafkaConsumer(Consumer({**CONSUMER_CONFIG, **self._config, **own}), topic)


class LibrdkafkaConsumer:
    """Implements `harness.clients.GroupConsumer`."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        """Subscribe to the topic."""
        self._consumer = consumer
        consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        """Return what is delivered next."""
        messages = self._consumer.consume(CONSUMED_AT_ONCE, timeout=timeout_s)
        for error in (message.error() for message in messages):
            if error is not None and not error.retriable():
                raise ClientError(str(error))
        delivered: list[Any] = [message for message in messages if message.error() is None]
        return [((message.topic(), message.partition()), message.offset()) for message in delivered]

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _commit(consumer: Consumer, offsets: list[confluent_kafka.TopicPartition]) -> None:
    """Commit, again and again while the coordinator moves, as `KafkaConsumer.commitSync` does."""
    deadline_s = time.monotonic() + OPERATION_TIMEOUT_S
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline_s:
                raise
            consumer.poll(RETRY_S)
        else:
            return


def _listed(offsets: Mapping[TopicPartition, int]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]


def _told(operation: Callable[[], object]) -> None:
    try:
        operation()
    except KafkaException as error:
        # Only what the library calls abortable did certainly not happen.
        raise ClientError(str(error), certainly=error.args[0].txn_requires_abort()) from error
    except TimeoutError as error:
        # Of a future: it has no words.
        raise ClientError("no answer in time", certainly=False) from error
