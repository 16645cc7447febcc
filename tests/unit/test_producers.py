"""librdkafka's producer: each poll returns a single answer, and a fatal error loses no answer."""

import pytest
from fakes.clients import FatalProducer

from harness.clients import librdkafka

RECORDS = 3


def test_a_fatal_error_leaves_every_record_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    producer = librdkafka.LibrdkafkaProducer("nowhere:9", "id", {})
    messages: list[str | None] = []
    for _ in range(RECORDS):
        producer.send(("topic", 0), "key", None, [], lambda error, _offset: messages.append(error))
    assert producer.flush() == 0
    assert messages == ["purged"] * RECORDS


def test_what_is_not_answered_in_time_is_counted() -> None:
    producer = librdkafka.LibrdkafkaProducer("127.0.0.1:9", None, {})
    producer.send(("topic", 0), "key", None, [], lambda _error, _offset: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(librdkafka, "OPERATION_TIMEOUT_S", 0.2)
        assert producer.flush() == 1
