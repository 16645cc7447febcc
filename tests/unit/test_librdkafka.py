"""librdkafka's clients: every record is answered, and offsets while the group's coordinator moves or is unavailable."""

import ctypes
import threading
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from fakes.clients import FatalProducer

from harness.clients import ClientError, librdkafka
from harness.clients.librdkafka import LibrdkafkaProducer


def commit(monkeypatch: pytest.MonkeyPatch, *codes: int) -> Mock:
    """Commit an offset with a coordinator that answers with these codes, and then accepts commits."""
    consumer = Mock(**{"commit.side_effect": [*(KafkaException(KafkaError(code)) for code in codes), None]})
    monkeypatch.setattr(librdkafka, "Consumer", lambda _config: consumer)
    librdkafka.LibrdkafkaGroups("127.0.0.1:9", {}).commit("g", {("orders", 0): 60})
    return consumer


def test_a_commit_goes_on_until_the_coordinator_has_moved_or_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = commit(monkeypatch, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert (moved.commit.call_count, moved.poll.call_count) == (3, 2)
    assert [offset.offset for offset in moved.commit.call_args.kwargs["offsets"]] == [60]
    assert moved.commit.call_args.kwargs["asynchronous"] is False
    with pytest.raises(ClientError, match="ILLEGAL_GENERATION"):
        commit(monkeypatch, KafkaError.ILLEGAL_GENERATION)
    monkeypatch.setattr("harness.clients.OPERATION_TIMEOUT_S", -1.0)
    with pytest.raises(ClientError, match="NOT_COORDINATOR"):
        commit(monkeypatch, KafkaError.NOT_COORDINATOR)


def test_a_deletion_that_is_not_answered_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"g": Future[None]()}
    admin = SimpleNamespace(delete_consumer_groups=lambda _groups, request_timeout: answers)  # noqa: ARG005
    monkeypatch.setattr(librdkafka, "AdminClient", lambda _config: admin)
    monkeypatch.setattr("harness.clients.OPERATION_TIMEOUT_S", 0.01)
    with pytest.raises(ClientError, match="no answer in time") as raised:
        librdkafka.LibrdkafkaGroups("127.0.0.1:9", {}).delete("g")
    assert not raised.value.certainly


def test_a_fatal_error_leaves_every_record_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    producer = LibrdkafkaProducer("nowhere:9", "id", {})
    messages: list[str] = []
    for _ in range(3):
        producer.send(("topic", 0), "key", None, [], lambda error, _offset: messages.append(str(error)))
    assert producer.flush() == 0
    assert messages == [str(KafkaError(KafkaError._PURGE_QUEUE, "purged"))] * 3


def test_an_error_that_no_valid_operation_meets_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(producer: FatalProducer, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(producer.code, txn_requires_abort=True))  # type: ignore[attr-defined]

    monkeypatch.setattr(librdkafka, "Producer", FatalProducer)
    monkeypatch.setattr(FatalProducer, "commit_transaction", refuse, raising=False)
    refusals = []
    for name in ("UNKNOWN", "INVALID_TXN_STATE", "_MSG_TIMED_OUT", "INVALID_PRODUCER_EPOCH"):
        monkeypatch.setattr(FatalProducer, "code", getattr(KafkaError, name), raising=False)
        with pytest.raises(ClientError) as raised:
            LibrdkafkaProducer("nowhere:9", "id", {}).transact("commit")
        refusals.append((raised.value.refusal, raised.value.certainly))
    assert refusals == [("UNKNOWN_SERVER_ERROR", False), ("INVALID_TXN_STATE", True), ("TIMED_OUT", True), ("", True)]


def test_what_is_not_answered_in_time_is_counted() -> None:
    producer = LibrdkafkaProducer("127.0.0.1:9", None, {})
    producer.send(("topic", 0), "key", None, [], lambda _error, _offset: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.clients.OPERATION_TIMEOUT_S", 0.2)
        assert producer.flush() == 1


GROUP, TRANSACTION, INPUT = b"g", b"t", b"x"
FIRST, SECOND = 2, 3
"""Brokers that coordinate the group before and after it moves; the transaction's is broker 1."""
BOUND_S = 30.0


class MockCluster:
    """Three brokers of librdkafka's mock cluster (rdkafka_mock.h), in the library that confluent-kafka brings along."""

    def __init__(self) -> None:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        (path, *_) = {line.split()[-1] for line in maps if "librdkafka" in line.rpartition("/")[2]}
        self._library: Any = ctypes.CDLL(path)
        for maker in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._library, maker).restype = ctypes.c_void_p
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        error = ctypes.create_string_buffer(200)
        for name, value in ((b"bootstrap.servers", b"127.0.0.1:9"), (b"log_level", b"0")):
            assert self._library.rd_kafka_conf_set(conf, name, value, error, len(error)) == 0, error.value
        self._handle = ctypes.c_void_p(self._library.rd_kafka_new(0, conf, error, len(error)))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, 3))
        assert self._library.rd_kafka_mock_topic_create(self._cluster, INPUT, 1, 1) == 0
        self.coordinate(b"transaction", TRANSACTION, 1)
        self.coordinate(b"group", GROUP, FIRST)

    @property
    def bootstrap(self) -> str:
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def coordinate(self, kind: bytes, name: bytes, broker: int) -> None:
        assert self._library.rd_kafka_mock_coordinator_set(self._cluster, kind, name, broker) == 0

    def stop(self, broker: int) -> None:
        assert self._library.rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


def test_offsets_of_a_transaction_follow_a_coordinator_that_moves_while_they_wait() -> None:
    with closing(MockCluster()) as cluster:
        producer = LibrdkafkaProducer(cluster.bootstrap, TRANSACTION.decode(), {"log_level": 0})
        producer.transact("init")
        producer.transact("begin")
        producer.send_offsets(GROUP.decode(), {(INPUT.decode(), 0): 1})
        producer.transact("commit")
        producer.transact("begin")
        cluster.stop(FIRST)
        is_sent = threading.Event()

        def send() -> None:
            producer.send_offsets(GROUP.decode(), {(INPUT.decode(), 0): 2})
            is_sent.set()

        # If the test fails, the thread never ends.
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        assert not is_sent.wait(1.0), "its coordinator is unavailable"
        cluster.coordinate(b"group", GROUP, SECOND)
        assert is_sent.wait(BOUND_S), "nothing made the library look for the coordinator again"
        thread.join()
        producer.transact("commit")
