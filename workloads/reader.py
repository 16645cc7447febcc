"""A real read_committed consumer, as the published reproducer uses one to show the damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from harness.errors import HarnessError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clock import Clock
    from harness.history import History

PART = "reader"
POLL_S = 0.2
ATTEMPT_S = 10.0


def read_committed(
    bootstrap: str, topics: Sequence[str], *, broker: int, phase: str, history: History, clock: Clock, timeout_s: float
) -> None:
    """Read each topic from its start to where a read_committed consumer gets no further, into the history.

    ``broker`` is the leader at that time. One poll operation a topic, with all that was delivered and the
    last position. Commits no offsets. A consumer that gets nowhere (after an election librdkafka may ask
    the old leader for long) is replaced by a new one; raises `WaitTimeoutError` when none of them reaches
    every end within ``timeout_s`` seconds.
    """
    started_s = clock.now_s()
    while True:
        events = [
            history.invoke(f="poll", process="reader", part=PART, phase=phase, topic=topic, partition=0, broker=broker)
            for topic in topics
        ]
        try:
            delivered, positions = _read_once(bootstrap, topics, clock, min(ATTEMPT_S, timeout_s))
        except WaitTimeoutError as error:
            for event in events:
                history.complete("fail", event, error=str(error))
            if clock.now_s() - started_s >= timeout_s:
                raise
            continue
        for event in events:
            topic = event["topic"]
            history.complete("ok", event, records=delivered[topic], position=positions[topic])
        return


def _read_once(
    bootstrap: str, topics: Sequence[str], clock: Clock, timeout_s: float
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "compaction-harness-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    delivered: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
    positions: dict[str, int] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])

        def all_at_end() -> bool:
            for message in consumer.consume(1000, timeout=POLL_S):
                _take(message, delivered, positions)
            return len(positions) == len(topics)

        clock.wait_until(all_at_end, timeout_s, "the read_committed consumer to reach the end of every topic")
    finally:
        consumer.close()
    return delivered, positions


def _take(message: Any, delivered: dict[str, list[dict[str, Any]]], positions: dict[str, int]) -> None:
    error = message.error()
    if error is None:
        value = message.value()
        delivered[message.topic()].append(
            {
                "offset": message.offset(),
                "key": message.key().decode(),
                "value": None if value is None else value.decode(),
            }
        )
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (the library's only name for it)
        positions[message.topic()] = message.offset()
    elif not error.retriable():
        raise HarnessError(f"the read_committed consumer failed: {error}")
