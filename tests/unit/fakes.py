"""Stand-ins for what a run is made of: small, without time of their own, and they remember what they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.errors import WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.clients import Answered

ROUNDS = 20
NOW_MS = 1_000_000

TopicPartition = tuple[str, int]


@dataclass
class TickingClock:
    """Every look at a condition takes one second. ``told`` receives what is waited for."""

    now: float = 0.0
    told: list[str] = field(default_factory=list)

    def now_s(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    def wait_until(self, condition: Callable[[], Any], _timeout_s: float, what: str) -> Any:
        self.told.append(f"wait for {what}")
        for _ in range(ROUNDS):
            if value := condition():
                return value
            self.now += 1
        raise WaitTimeoutError(what)

    def every(self, _period_s: float, _action: Callable[[], None], name: str) -> Resting:
        self.told.append(f"begin {name}")
        return Resting()


class Resting:
    """A routine that never does anything."""

    def stop(self) -> None:
        """It has not begun."""

    def raise_if_failed(self) -> None:
        """It does not fail."""


@dataclass(frozen=True)
class Sent:
    """One record as a library is given it."""

    key: str
    value: str | None
    headers: Mapping[str, str]


@dataclass
class FakeLibrary:
    """Makes producers. ``logs`` has what they sent; ``calls`` has every operation but `flush`, in order.

    ``starts``: offsets at which logs begin; ``refused``: keys whose records are not acknowledged.
    """

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    logs: dict[TopicPartition, list[Sent]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def make(self, transactional_id: str | None) -> FakeProducer:
        return FakeProducer(self, transactional_id)


@dataclass
class FakeProducer:
    """Answers at `flush`, as the libraries do."""

    library: FakeLibrary
    transactional_id: str | None
    unanswered: list[Callable[[], None]] = field(default_factory=list)

    def init_transactions(self) -> None:
        self.library.calls.append(f"init {self.transactional_id}")

    def begin_transaction(self) -> None:
        self.library.calls.append(f"begin {self.transactional_id}")

    def commit_transaction(self) -> None:
        self.library.calls.append(f"commit {self.transactional_id}")

    def abort_transaction(self) -> None:
        self.library.calls.append(f"abort {self.transactional_id}")

    def send(
        self, to: TopicPartition, key: str, value: str | None, headers: list[tuple[str, bytes]], answered: Answered
    ) -> None:
        self.library.calls.append(f"{'delete' if value is None else 'put'} {key} in {to[0]}-{to[1]}")
        log = self.library.logs.setdefault(to, [])
        offset = self.library.starts.get(to, 0) + len(log)
        error = "timed out" if key in self.library.refused else None
        log.append(Sent(key, value, {name: text.decode() for name, text in headers}))
        self.unanswered.append(partial(answered, error, offset))

    def flush(self) -> int:
        for answer in self.unanswered:
            answer()
        self.unanswered.clear()
        return 0


def append_half_a_line(path: Path) -> None:
    """Leave a file as a process leaves it that is killed while it writes."""
    with path.open("a") as file:
        file.write('{"index": 99, "ty')
