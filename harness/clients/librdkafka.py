"""librdkafka, through confluent-kafka: transactions v1 with every broker (at least up to 2.16)."""

# ruff: noqa: D102 (methods of the protocols of `harness.clients`)

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from harness import clients
from harness.kafka_api import TopicPartition
from harness.schedules.scenario import CLASSIC

CONNECTION = {
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
CONFIG = {**CONNECTION, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": int(clients.OPERATION_TIMEOUT_S * 1000)}
TRANSACTIONAL = {
    "transaction.timeout.ms": clients.TRANSACTION_TIMEOUT_MS,
    # Offsets of a transaction wait for their group's coordinator without a bound, in spite of their time-out, and look
    # for another coordinator only when a connection to some broker changes (confluentinc/librdkafka#5456, 2.16.0). The
    # end of an idle connection is such a change.
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
COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,  # noqa: SLF001  (public in spite of the name)
)
"""Errors of a commit, without an effect, while a group's coordinator moves; librdkafka repeats such commits only a few
times."""
RETRY_S = 0.05
_NAMES = {"UNKNOWN": clients.UNKNOWN_SERVER_ERROR, "_MSG_TIMED_OUT": clients.TIMED_OUT, "_TIMED_OUT": clients.TIMED_OUT}
"""Kafka's names of errors, where librdkafka has others."""


@contextmanager
def opened(spec: clients.ClientSpec) -> Iterator[clients.Library]:
    """Yield the library; each producer and consumer connects at its first use."""
    # The library's fatal messages would go to the terminal.
    logger = logging.getLogger(f"{__name__}.{spec.run_id}")
    handler = logging.FileHandler(spec.log_path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s librdkafka %(message)s"))
    logger.propagate = False
    logger.addHandler(handler)
    common = {**(spec.security.for_librdkafka() if spec.security else {}), "logger": logger}
    make = partial(LibrdkafkaProducer, spec.bootstrap)
    try:
        yield clients.Library(
            lambda transactional_id: make(transactional_id, common),
            LibrdkafkaGroups(spec.bootstrap, common),
            partial(make, None, {**common, "enable.idempotence": "true"}),
            partial(make, None, {**common, "message.send.max.retries": 0}),
        )
    finally:
        logger.removeHandler(handler)
        handler.close()


class LibrdkafkaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, bootstrap: str, transactional_id: str | None, common: Mapping[str, Any]) -> None:
        # Without a transactional id it is not idempotent: with a producer.id.expiration.ms of seconds brokers forget an
        # idempotent producer whenever it pauses.
        config: dict[str, Any] = {**CONFIG, **common, "bootstrap.servers": bootstrap}
        if transactional_id is not None:
            config |= {**TRANSACTIONAL, "transactional.id": transactional_id}
        self._producer = Producer(config)

    def transact(self, step: clients.TransactionStep) -> None:
        timeout_s = () if step == "begin" else (clients.OPERATION_TIMEOUT_S,)
        with _client_errors():
            getattr(self._producer, "init_transactions" if step == "init" else f"{step}_transaction")(*timeout_s)

    def send(
        self, to: TopicPartition, key: str | bytes, value: str | None, headers: clients.Headers, reply: clients.Answered
    ) -> None:
        """Send a record; its acknowledgement is recorded by this thread, in a later `send` or in `flush`."""

        def delivered(error: Any, message: Any) -> None:
            offset = message.offset() if error is None else None
            reply(None if error is None else _failure(error), clients.NO_OFFSET if offset is None else offset)

        content = None if value is None else value.encode()
        with _client_errors():
            self._producer.produce(
                to[0], key=key, value=content, partition=to[1], headers=[*headers], on_delivery=delivered
            )
        self._poll(0)

    def flush(self) -> int:
        """Wait for every answer.

        Does not use the library's flush: when a fatal error is raised, flush still calls `answered` with that exception
        pending (confluent-kafka 2.16: a SystemError, and probably a run that hung).
        """
        deadline_s = time.monotonic() + clients.OPERATION_TIMEOUT_S
        while (unanswered := len(self._producer)) and (remaining_s := deadline_s - time.monotonic()) > 0:
            self._poll(remaining_s)
        return unanswered

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as part of the open transaction. Blocks until the group has a coordinator."""
        # Only a consumer makes the group's metadata; this consumer never connects.
        with closing(Consumer({"group.id": group, "bootstrap.servers": "127.0.0.1:9", "log_level": 0})) as consumer:
            member = consumer.consumer_group_metadata()
        with _client_errors():
            self._producer.send_offsets_to_transaction(_offsets(offsets), member, clients.OPERATION_TIMEOUT_S)

    def _poll(self, timeout_s: float) -> None:
        """Receive acknowledgements; a fatal error is raised again by every operation that it concerns."""
        with suppress(KafkaException):
            self._producer.poll(timeout_s)


class LibrdkafkaGroups:
    """Implements `harness.clients.LibraryGroups`."""

    def __init__(self, bootstrap: str, common: Mapping[str, Any]) -> None:
        self.producer = partial(LibrdkafkaProducer, bootstrap, common=common)
        self._config: Mapping[str, Any] = {**common, "bootstrap.servers": bootstrap}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit repeatedly while the coordinator moves, as `KafkaConsumer.commitSync` does."""
        deadline_s = time.monotonic() + clients.OPERATION_TIMEOUT_S
        consumer = Consumer({**CONSUMER_CONFIG, **self._config, "group.id": group})
        with closing(consumer), _client_errors():
            while True:
                try:
                    consumer.commit(offsets=_offsets(offsets), asynchronous=False)
                except KafkaException as error:
                    if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline_s:
                        raise
                    consumer.poll(RETRY_S)
                else:
                    return

    def delete(self, group: str) -> None:
        admin = AdminClient({**CONNECTION, **self._config})
        (deleted,) = admin.delete_consumer_groups([group], request_timeout=clients.OPERATION_TIMEOUT_S).values()
        with _client_errors():
            deleted.result(clients.OPERATION_TIMEOUT_S)

    def consumer(self, group: str, topic: str, protocol: str) -> "LibrdkafkaConsumer":
        settings = {**(CLASSIC_CONFIG if protocol == CLASSIC else {}), "group.id": group, "group.protocol": protocol}
        return LibrdkafkaConsumer(Consumer({**CONSUMER_CONFIG, **self._config, **settings}), topic)


class LibrdkafkaConsumer:
    """Implements `harness.clients.GroupConsumer`."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer, self.close = consumer, consumer.close
        consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        messages = self._consumer.consume(CONSUMED_AT_ONCE, timeout=timeout_s)
        for error in (message.error() for message in messages):
            if error is not None and not error.retriable():
                raise _failure(error)
        delivered: list[Any] = [message for message in messages if message.error() is None]
        return [((message.topic(), message.partition()), message.offset()) for message in delivered]


def _offsets(offsets: Mapping[TopicPartition, int]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]


def _failure(error: KafkaError) -> clients.ClientError:
    name = _NAMES.get(error.name(), error.name())
    refusal = name if name in clients.REFUSALS else ""
    # An abortable error shows that the operation had no effect, except after an exception in the broker.
    certainly = error.txn_requires_abort() and name != clients.UNKNOWN_SERVER_ERROR
    return clients.ClientError(str(error), certainly=certainly, refusal=refusal)


@contextmanager
def _client_errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _failure(error.args[0]) from error
    except TimeoutError as error:
        # The time-out of a future has no message.
        raise clients.ClientError("no answer in time", refusal=clients.TIMED_OUT) from error
