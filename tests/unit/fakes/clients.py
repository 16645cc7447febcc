"""Fake client libraries: the records that a producer sends, and the answers to them."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from harness.clients import Answered, ClientError, Headers, LibraryProducer, TransactionStep
from harness.kafka_api import TopicPartition


@dataclass(frozen=True)
class Sent:
    """One record as a library is given it."""

    key: str
    value: str | None
    headers: Mapping[str, str]


@dataclass
class FakeLibrary:
    """Makes producers. ``logs``: their records. ``calls``: all operations except `flush`, in order.

    ``starts``: of logs. ``refused``: keys that are not acknowledged. ``refusals``: how many commits and aborts fail.
    """

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    logs: dict[TopicPartition, list[Sent]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    refusals: int = 0
    ended: int = 0
    made: int = 0

    def make(self, transactional_id: str | None) -> LibraryProducer:
        self.made += 1
        return FakeProducer(self, transactional_id)


@dataclass
class FakeProducer:
    """Implements `LibraryProducer`. Answers at `flush`, as the libraries do."""

    library: FakeLibrary
    transactional_id: str | None
    unanswered: list[Callable[[], None]] = field(default_factory=list)

    def transact(self, step: TransactionStep) -> None:
        self.library.calls.append(f"{step} {self.transactional_id}")
        if step in ("commit", "abort"):
            if self.library.refusals:
                self.library.refusals -= 1
                raise ClientError("INVALID_TXN_STATE")
            self.library.ended += 1

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:
        assert isinstance(key, str), "bytes are for offsets of groups"
        self.library.calls.append(f"{'delete' if value is None else 'put'} {key} in {to[0]}-{to[1]}")
        log = self.library.logs.setdefault(to, [])
        offset = self.library.starts.get(to, 0) + len(log)
        error = ClientError("timed out") if key in self.library.refused else None
        log.append(Sent(key, value, {name: text.decode() for name, text in headers}))
        self.unanswered.append(partial(reply, error, offset))

    def flush(self) -> int:
        for answer in self.unanswered:
            answer()
        self.unanswered.clear()
        return 0


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
        self._waiting.popleft()(KafkaError(KafkaError._PURGE_QUEUE, "purged"), None)
        return 1
