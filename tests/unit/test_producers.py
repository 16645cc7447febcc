"""librdkafka's producer: answers come one poll at a time, and a fatal error takes none of them away."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException

from harness.clients import librdkafka

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 3


class FatalProducer:
    """Answers one record a poll, and raises a fatal error in the first poll that waits, as librdkafka does."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self._waiting: deque[Callable[[Any, Any], None]] = deque()
        self._is_fatal = False

    def __len__(self) -> int:
        return len(self._waiting)

    def produce(self, _topic: str, *, on_delivery: Callable[[Any, Any], None], **_record: Any) -> None:
        self._waiting.append(on_delivery)

    def poll(self, timeout_s: float) -> int:
        if timeout_s == 0:
            return 0
        if not self._is_fatal:
            self._is_fatal = True
            raise KafkaException("out of order sequence number")
        self._waiting.popleft()("purged", None)
        return 1


def test_a_fatal_error_leaves_every_record_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    producer = librdkafka.LibrdkafkaProducer("nowhere:9", "id", {})
    told: list[str | None] = []
    for _ in range(RECORDS):
        producer.send(("topic", 0), "key", None, [], lambda error, _offset: told.append(error))
    assert producer.flush() == 0
    assert told == ["purged"] * RECORDS


def test_what_is_not_answered_in_time_is_counted() -> None:
    producer = librdkafka.LibrdkafkaProducer("127.0.0.1:9", None, {})
    producer.send(("topic", 0), "key", None, [], lambda _error, _offset: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(librdkafka, "OPERATION_TIMEOUT_S", 0.2)
        assert producer.flush() == 1
