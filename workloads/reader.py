"""A real read_committed consumer, as the published reproducer uses one to show the damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from harness.errors import HarnessError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clock import Clock
    from harness.history import History
    from harness.replica import TopicPartition

PART = "reader"
POLL_S = 0.2
ATTEMPT_S = 10.0


def read_committed(
    bootstrap: str,
    partitions: Sequence[TopicPartition],
    *,
    broker: int,
    phase: str,
    history: History,
    clock: Clock,
    timeout_s: float,
) -> None:
    """Read each partition from its start to where a read_committed consumer gets no further, into the history.

    ``broker`` is the leader at that time. One poll operation a partition, with all that was delivered and the
    last position. Commits no offsets. A consumer that gets nowhere (after an election librdkafka may ask
    the old leader for long) is replaced by a new one; raises `WaitTimeoutError` when none of them reaches
    every end within ``timeout_s`` seconds.
    """
    started_s = clock.now_s()
    while True:
        events = [
            history.invoke(
                f="poll", process="reader", part=PART, phase=phase, topic=topic, partition=partition, broker=broker
            )
            for topic, partition in partitions
        ]
        try:
            delivered, positions = _read_once(bootstrap, partitions, clock, min(ATTEMPT_S, timeout_s))
        except WaitTimeoutError as error:
            for event in events:
                history.complete("fail", event, error=str(error))
            if clock.now_s() - started_s >= timeout_s:
                raise
            continue
        for event in events:
            tp = (event["topic"], event["partition"])
            history.complete("ok", event, records=delivered[tp], position=positions[tp])
        return


def _read_once(
    bootstrap: str, partitions: Sequence[TopicPartition], clock: Clock, timeout_s: float
) -> tuple[dict[TopicPartition, list[dict[str, Any]]], dict[TopicPartition, int]]:
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
    delivered: dict[TopicPartition, list[dict[str, Any]]] = {tp: [] for tp in partitions}
    positions: dict[TopicPartition, int] = {}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for topic, partition in partitions])

        def all_at_end() -> bool:
            for message in consumer.consume(1000, timeout=POLL_S):
                _take(message, delivered, positions)
            return len(positions) == len(partitions)

        clock.wait_until(all_at_end, timeout_s, "the read_committed consumer to reach the end of every partition")
    finally:
        consumer.close()
    return delivered, positions


def _take(
    message: Any, delivered: dict[TopicPartition, list[dict[str, Any]]], positions: dict[TopicPartition, int]
) -> None:
    error = message.error()
    tp = (message.topic(), message.partition())
    if error is None:
        value = message.value()
        delivered[tp].append(
            {
                "offset": message.offset(),
                "key": message.key().decode(),
                "value": None if value is None else value.decode(),
            }
        )
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (the library's only name for it)
        positions[tp] = message.offset()
    elif not error.retriable():
        raise HarnessError(f"the read_committed consumer failed: {error}")
