"""Commits of librdkafka while the coordinator of a group moves."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.clients import ClientError, librdkafka

ORDERS = ("orders", 0)


@dataclass
class Coordinator:
    """A stand-in of ``confluent_kafka.Consumer``: answers commits with these codes, and then accepts them."""

    codes: list[int]
    committed: list[int] = field(default_factory=list)
    polled: int = 0

    def commit(self, offsets: list[Any], *, asynchronous: bool) -> None:
        assert not asynchronous
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        self.committed += [offset.offset for offset in offsets]

    def poll(self, _timeout_s: float) -> None:
        self.polled += 1

    def close(self) -> None:
        """Do nothing."""


def commit(monkeypatch: pytest.MonkeyPatch, *codes: int) -> Coordinator:
    coordinator = Coordinator(list(codes))
    monkeypatch.setattr(librdkafka, "Consumer", lambda _config: coordinator)
    librdkafka.LibrdkafkaGroups("127.0.0.1:9", {}).commit("g", {ORDERS: 60})
    return coordinator


def test_a_commit_goes_on_until_the_coordinator_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = commit(monkeypatch, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert (moved.committed, moved.polled) == ([60], 2)


def test_another_error_and_a_coordinator_that_never_comes_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="ILLEGAL_GENERATION"):
        commit(monkeypatch, KafkaError.ILLEGAL_GENERATION)
    monkeypatch.setattr(librdkafka, "OPERATION_TIMEOUT_S", -1.0)
    with pytest.raises(ClientError, match="NOT_COORDINATOR"):
        commit(monkeypatch, KafkaError.NOT_COORDINATOR)


def test_a_deletion_that_is_not_answered_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"g": Future[None]()}
    admin = SimpleNamespace(delete_consumer_groups=lambda _groups, request_timeout: answers)  # noqa: ARG005
    monkeypatch.setattr(librdkafka, "AdminClient", lambda _config: admin)
    monkeypatch.setattr(librdkafka, "OPERATION_TIMEOUT_S", 0.01)
    with pytest.raises(ClientError, match="no answer in time") as raised:
        librdkafka.LibrdkafkaGroups("127.0.0.1:9", {}).delete("g")
    assert not raised.value.certainly
