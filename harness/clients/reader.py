"""A real read_committed consumer, which shows the damage as in the published reproducer."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import fetch
from harness.run_folder.history import History

PART = "reader"
POLL_S = 0.2
ATTEMPT_S = 10.0

CONFIG = {
    "group.id": "compaction-harness-reader",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "statistics.interval.ms": 200,
    "log_level": 0,
}


class Reading(Protocol):
    """One read_committed consumer from the start of its partitions to their ends.

    ``delivered``: records, each a ``{offset, key, value or null}``. ``ends``: positions in completed partitions.
    """

    delivered: dict[TopicPartition, list[dict[str, Any]]]
    ends: dict[TopicPartition, int]

    def is_at_end(self) -> bool:
        """Read more; return whether every partition's end is reached. Raises `HarnessError`."""

    def close(self) -> None:
        """End the consumer."""


def read_committed(
    begin: Callable[[Sequence[TopicPartition]], Reading],
    partitions: Sequence[TopicPartition],
    *,
    broker: int,
    phase: str,
    history: History,
    clock: Clock,
    timeout_s: float,
) -> Reading:
    """Read each partition from its start to its end for a read_committed consumer; return the closed consumer.

    ``broker``: the leader of all partitions, on which ``begin`` starts a consumer. The history gets one poll operation
    for each partition, with all delivered records and the last position. No offsets are committed. A consumer without
    progress (librdkafka may ask the old leader for long after an election) is replaced by a new one. Raises
    `WaitTimeoutError` if no consumer reaches every end within ``timeout_s`` seconds.
    """
    started_s, common = clock.now_s(), {"process": "reader", "part": PART, "phase": phase}
    awaited = "the read_committed consumer to reach the end of every partition"
    while True:
        events = [
            history.invoke(f="poll", **common, topic=topic, partition=partition, broker=broker)
            for topic, partition in partitions
        ]
        reading = begin(partitions)
        try:
            clock.wait_until(reading.is_at_end, min(ATTEMPT_S, timeout_s), awaited)
        except WaitTimeoutError as error:
            for event in events:
                history.complete("fail", event, error=str(error))
            if clock.now_s() - started_s >= timeout_s:
                raise
            continue
        finally:
            reading.close()
        for event in events:
            tp = (event["topic"], event["partition"])
            history.complete("ok", event, records=reading.delivered[tp], position=reading.ends[tp])
        return reading


def delivered_record(offset: int, key: bytes, value: bytes | None) -> dict[str, Any]:
    """Return a record of `Reading.delivered`."""
    return {"offset": offset, "key": key.decode(), "value": None if value is None else value.decode()}


class LibrdkafkaReading:
    """Implements `Reading`."""

    def __init__(self, leader: Address, partitions: Sequence[TopicPartition]) -> None:
        self.delivered: dict[TopicPartition, list[dict[str, Any]]] = {tp: [] for tp in partitions}
        self.ends: dict[TopicPartition, int] = {}
        self._leader = leader
        self._next: dict[TopicPartition, int] = {}
        login = leader.security.for_librdkafka() if leader.security else {}
        address = {"bootstrap.servers": str(leader), "stats_cb": self._take_statistics}
        self._consumer = Consumer({**CONFIG, **login, **address})
        self.close = self._consumer.close
        self._consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for topic, partition in partitions])

    def is_at_end(self) -> bool:
        """Read more; return whether every partition's end is reached.

        librdkafka reports the end only if its position is the last stable offset, which it never reaches after a gap
        that the cleaner has left at the end; then the leader is asked whether it has more records.
        """
        messages: list[Any] = self._consumer.consume(1000, timeout=POLL_S)
        for message in messages:
            error, tp = message.error(), (message.topic(), message.partition())
            if error is None:
                self.delivered[tp].append(delivered_record(message.offset(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (the library's only name for it)
                self.ends[tp] = message.offset()
            elif not error.retriable():
                raise HarnessError(f"the read_committed consumer failed: {error}")
        late = {tp: self._next[tp] for tp in self.delivered if tp not in self.ends and tp in self._next}
        if late and not messages:
            with suppress(OSError):  # a leader that is slow answers the next time
                answers = ask(self._leader, fetch(late)).items()
                self.ends |= {tp: late[tp] for tp, a in answers if not isinstance(a, str) and not a.records}
        return len(self.ends) == len(self.delivered)

    def _take_statistics(self, text: str) -> None:
        """Store the next offset to fetch of each partition whose fetched records are all delivered."""
        for name, topic in json.loads(text)["topics"].items():
            for number, partition in topic["partitions"].items():
                if partition["fetch_state"] == "active" and partition["fetchq_cnt"] == 0:
                    self._next[name, int(number)] = partition["next_offset"]
                else:
                    self._next.pop((name, int(number)), None)
