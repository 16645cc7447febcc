"""The topic ``compaction-guard``: what was found, kept in the cluster itself before anything is changed.

It has one partition, is not compacted (a cleaner might lose what it has), and stays writable while a single replica of
it is in the ISR. It has no retention: the guard that acts deletes the entries that nothing needs any more (`trim`).
Each reading goes to the end of the log: what another machine kept is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from harness.errors import HarnessError, UsageError
from harness.protect.guard.journal import parse_entry
from harness.protect.guard.replayed import Replayed
from harness.protect.guard.settings import POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.host.clock import Clock
    from harness.kafka_api.address import Address
    from harness.protect.guard.journal import Entry, PauseState

TOPIC: Final = "compaction-guard"
SETTINGS: Final = {POLICY: "delete", "retention.ms": "-1", "retention.bytes": "-1", "min.insync.replicas": "1"}
REPLICAS: Final = 3
"""Where there are fewer brokers, as many."""
REQUEST_S: Final = 5.0
ANSWER_S: Final = 1.5
"""For what is asked in each round: where the channel's leader is frozen, the next round may ask another one."""
KNOWN_S: Final = 30.0
"""For brokers to hear of a topic that was created: busy ones took more than 5 s with 1,000 topics."""
READ_S: Final = 30.0
"""For a reading from the first entry on."""
BATCH: Final = 1_000
TRIMMED: Final = 200
"""So many entries, at least, are deleted by one request."""
LIBRDKAFKA: Final = {
    "client.id": "compaction-guard",
    # A request without an answer ends the connection, after which librdkafka looks for the leader anew.
    "socket.timeout.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "allow.auto.create.topics": False,
    "log_level": 0,
}
DELIVERY_S: Final = 8.0
PRODUCER: Final = {
    "acks": "all",
    "linger.ms": 5,
    # In order, also where a request is repeated.
    "max.in.flight.requests.per.connection": 1,
    "request.timeout.ms": 1_000,
    "delivery.timeout.ms": int(DELIVERY_S * 1000),
}


def librdkafka_config(bootstrap: Sequence[Address]) -> dict[str, Any]:
    """Return the properties of a librdkafka client with the login of these addresses."""
    login = bootstrap[0].security.for_librdkafka() if bootstrap[0].security else {}
    return {**LIBRDKAFKA, **login, "bootstrap.servers": ",".join(map(str, bootstrap))}


def producer_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of the producer; it has no automatic creation to forbid."""
    return {name: value for name, value in (config | PRODUCER).items() if name != "allow.auto.create.topics"}


class KafkaChannel:
    """Implements `harness.protect.guard.ports.Channel`. One owner."""

    def __init__(self, bootstrap: Sequence[Address], clock: Clock) -> None:
        """Store where brokers are; clients connect when they are first used."""
        self._config = librdkafka_config(bootstrap)
        self._clock = clock
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._found = False
        self._first = 0
        self._replayed = Replayed()

    def ensure(self) -> None:
        """Create the topic where it is missing. Raises `UsageError` where it is compacted, `HarnessError`."""
        admin = AdminClient(producer_config(self._config))
        try:
            seen = admin.list_topics(timeout=REQUEST_S)
            if TOPIC not in seen.topics:
                _create(admin, min(REPLICAS, len(seen.brokers)))
            # A broker may not know yet of a topic that was created a moment ago.
            policy = str(self._clock.wait_until(lambda: _policy(admin), KNOWN_S, f"brokers to know topic {TOPIC}"))
        except KafkaException as error:
            raise HarnessError(f"topic {TOPIC}: {error.args[0].str()}") from error
        except TimeoutError as error:
            raise HarnessError(f"topic {TOPIC}: no answer within {REQUEST_S * 2:g} s") from error
        if "compact" in policy:
            raise UsageError(
                f"topic {TOPIC} has {POLICY}={policy}, which could lose what the guard keeps: set {POLICY}=delete"
            )

    def read(self) -> PauseState:
        """Read on to the end. Raises `HarnessError` where it cannot, or where the topic has lost entries."""
        consumer = self._consumer = self._consumer or Consumer({
            **self._config, "group.id": TOPIC, "enable.auto.commit": False, "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        })  # fmt: skip
        try:
            if not self._is_there(consumer):
                return self._replayed.state
            self._first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=ANSWER_S, cached=False)
            if end < self._replayed.position:
                raise HarnessError(
                    f"topic {TOPIC} ends at offset {end}, and was read up to {self._replayed.position}: it was deleted"
                    " or truncated; end the guard, and compare the settings of paused topics by hand"
                )
            start = self._replayed.start(self._first)
            if end > start:
                self._read_on(consumer, start, end)
        except KafkaException as error:
            raise HarnessError(f"topic {TOPIC} cannot be read: {error.args[0].str()}") from error
        return self._replayed.state

    def trim(self) -> None:
        """Delete the entries that nothing needs any more (DeleteRecords, KIP-107), if they are `TRIMMED` or more.

        Raises `HarnessError` where the cluster refuses; then the next attempt is after as many entries more.
        """
        start = self._replayed.needed_from
        if start - self._first < TRIMMED:
            return
        self._first = start
        admin = AdminClient(producer_config(self._config))
        place = TopicPartition(TOPIC, 0, start)
        try:
            (done,) = admin.delete_records([place], request_timeout=REQUEST_S).values()
            done.result(REQUEST_S * 2)
        except KafkaException as error:
            raise HarnessError(f"old entries of topic {TOPIC} cannot be deleted: {error.args[0].str()}") from error
        except TimeoutError as error:
            raise HarnessError(f"old entries of topic {TOPIC} cannot be deleted: no answer") from error

    def append(self, entries: Sequence[Entry]) -> None:
        """Write all entries, and wait for their acknowledgement, once. Raises `HarnessError`."""
        producer = self._producer = self._producer or Producer(producer_config(self._config))
        failures: list[str] = []
        unanswered = len(entries)

        def delivered(error: Any, _message: Any) -> None:
            nonlocal unanswered
            unanswered -= 1
            if error is not None:
                failures.append(error.str())

        try:
            for entry in entries:
                producer.produce(TOPIC, entry.to_json().encode(), entry.topic, 0, on_delivery=delivered)
            deadline_s = self._clock.now_s() + DELIVERY_S + REQUEST_S
            while unanswered and self._clock.now_s() < deadline_s:
                producer.poll(0.1)
        except (KafkaException, BufferError) as error:
            raise HarnessError(f"topic {TOPIC} cannot be written: {error}") from error
        if failures or unanswered:
            why = failures[0] if failures else "no acknowledgement"
            raise HarnessError(f"topic {TOPIC} cannot be written: {why} ({len(failures) + unanswered} entries)")

    def close(self) -> None:
        """Close the consumer; the producer has nothing left to send."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_on(self, consumer: Consumer, start: int, end: int) -> None:
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        entries: list[tuple[int, Entry]] = []
        position = start
        deadline_s = self._clock.now_s() + READ_S
        try:
            while position < end:
                if self._clock.now_s() > deadline_s:
                    raise HarnessError(f"topic {TOPIC} was read up to {position} of {end} within {READ_S:g} s")
                messages: list[Any] = consumer.consume(min(BATCH, end - position), timeout=0.2)
                for message in messages:
                    if message.error():
                        raise HarnessError(f"topic {TOPIC} cannot be read: {message.error().str()}")
                    position = message.offset() + 1
                    entry = parse_entry(message.value() or b"")
                    entries += [] if entry is None else [(message.offset(), entry)]
        finally:
            # An assigned consumer would go on to fetch between readings.
            consumer.unassign()
        self._replayed.add(entries, position)

    def _is_there(self, consumer: Consumer) -> bool:
        """Whether a guard has been here before; later readings do not ask."""
        if not self._found:
            topic: Any = consumer.list_topics(TOPIC, timeout=REQUEST_S).topics[TOPIC]
            if topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(topic.error)
            self._found = topic.error is None
        return self._found


def _create(admin: AdminClient, replicas: int) -> None:
    """Create the channel, unless another guard is quicker."""
    new = NewTopic(TOPIC, 1, replicas, config=dict(SETTINGS))
    (created,) = admin.create_topics([new], request_timeout=REQUEST_S).values()
    try:
        created.result(REQUEST_S * 2)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _policy(admin: AdminClient) -> str | None:
    """Return the channel's cleanup policy; None where the broker that was asked does not know the topic."""
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)], request_timeout=REQUEST_S).values()
    try:
        return str(answer.result(REQUEST_S * 2)[POLICY].value)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
