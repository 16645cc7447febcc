"""librdkafka's producer: each poll returns a single answer, and a fatal error loses no answer."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from fakes.clients import FatalProducer

from harness.clients import ClientError, librdkafka

RECORDS = 3


def test_a_fatal_error_leaves_every_record_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    producer = librdkafka.LibrdkafkaProducer("nowhere:9", "id", {})
    messages: list[str] = []
    for _ in range(RECORDS):
        producer.send(("topic", 0), "key", None, [], lambda error, _offset: messages.append(str(error)))
    assert producer.flush() == 0
    assert messages == [str(KafkaError(KafkaError._PURGE_QUEUE, "purged"))] * RECORDS


def test_an_error_that_no_valid_operation_meets_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(producer: FatalProducer, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(producer.code))  # type: ignore[attr-defined]

    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    monkeypatch.setattr(FatalProducer, "commit_transaction", refuse, raising=False)
    refusals = []
    for name in ("UNKNOWN", "INVALID_TXN_STATE", "_MSG_TIMED_OUT", "INVALID_PRODUCER_EPOCH"):
        monkeypatch.setattr(FatalProducer, "code", getattr(KafkaError, name), raising=False)
        with pytest.raises(ClientError) as raised:
            librdkafka.LibrdkafkaProducer("nowhere:9", "id", {}).transact("commit")
        refusals.append(raised.value.refusal)
    assert refusals == ["UNKNOWN_SERVER_ERROR", "INVALID_TXN_STATE", "TIMED_OUT", ""]


def test_what_is_not_answered_in_time_is_counted() -> None:
    producer = librdkafka.LibrdkafkaProducer("127.0.0.1:9", None, {})
    producer.send(("topic", 0), "key", None, [], lambda _error, _offset: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.clients.OPERATION_TIMEOUT_S", 0.2)
        assert producer.flush() == 1
