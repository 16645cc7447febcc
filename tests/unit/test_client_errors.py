"""Errors of client libraries: of a leader that is slow, and of Kafka Streams."""

import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError

from harness.clients import ClientError, reader
from harness.clients.java import JavaStreams
from harness.kafka_api.address import Address

PLACE = ("orders", 0)


def test_a_leader_that_is_slow_is_asked_again_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [TimeoutError, {PLACE: SimpleNamespace(records=b"")}]
    monkeypatch.setattr(reader, "Consumer", Mock(**{"return_value.consume.return_value": []}))
    monkeypatch.setattr(reader, "ask", Mock(side_effect=answers))
    reading = reader.LibrdkafkaReading(Address("h", 1), [PLACE])
    partition = {"fetch_state": "active", "fetchq_cnt": 0, "next_offset": 7}
    reading._take_statistics(json.dumps({"topics": {"orders": {"partitions": {"0": partition}}}}))
    assert [reading.is_at_end(), reading.is_at_end()] == [False, True]
    assert reading.ends == {PLACE: 7}


def test_an_application_of_streams_that_failed_is_an_error_of_the_client() -> None:
    failed = Mock(_target_id="o1", **{"getCause.return_value": None, "toString.return_value": "it is not running"})
    jvm = Mock()
    streams = jvm.org.apache.kafka.streams.KafkaStreams.return_value
    streams.metadataForLocalThreads.side_effect = Py4JJavaError("", failed)
    with pytest.raises(ClientError, match="it is not running"):
        JavaStreams(jvm, {}, "orders").poll(1.0)
