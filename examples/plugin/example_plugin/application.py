"""An application that keeps the last value of each key in memory, as a cache of a compacted topic does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from harness.clients import ClientSpec
from harness.host.clock import Clock
from workloads.applications import Application, Life, Observation, Observe

READ_S = 20.0


@contextmanager
def opened(spec: ClientSpec, clock: Clock) -> Iterator[Observe]:
    """Return a function that reads each topic from its beginning."""

    def observe(life: Life) -> list[Observation]:
        return [{"topic": topic, "view": "cache", **read(spec, clock, topic)} for topic in life.topics]

    yield observe


def read(spec: ClientSpec, clock: Clock, topic: str) -> Observation:
    """Return the last value of each key up to the last stable offset, as read_committed consumers get them."""
    settings = {"bootstrap.servers": spec.bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer, started_s = Consumer({**settings, "isolation.level": "read_committed"}), clock.now_s()
    consumer.assign([TopicPartition(topic, 0, 0)])
    entries: dict[str, str] = {}
    is_ready = False
    while not is_ready and clock.now_s() - started_s < READ_S:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            key, value = message.key() or b"", message.value()
            entries.pop(key.decode(), None)
            if value is not None:
                entries[key.decode()] = value.decode()
        is_ready = message is not None and message.error() is not None
    consumer.close()
    took_s = round(clock.now_s() - started_s, 1)
    error = None if is_ready else json.dumps({"read": len(entries), "of": topic})
    return {
        "state": "READY" if is_ready else "READING",
        "running_s": took_s if is_ready else None,
        "watched_s": took_s,
        "entries": entries if is_ready else None,
        "error": error,
    }


APPLICATION = Application(name="last-values", summary="a cache of the last values", opened=opened)
