"""Time as something that is passed in: bounded waits on conditions, never sleeps.

A simulated cluster brings a clock of its own with the same verbs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.errors import TimeLimitError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

POLL_S = 0.05
"""How often a condition is looked at again. Small against the fastest timer used (segment.ms=100)."""


class Clock(Protocol):
    """What the runner and the workloads know of time."""

    def now_s(self) -> float:
        """Monotonic seconds since the run began."""
        ...

    def time_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as brokers stamp them."""
        ...

    def wait_until(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """Return the condition's first true value; see `RealClock.wait_until`."""
        ...


@dataclass(frozen=True)
class RealClock:
    """Wall-clock time, with one limit on the whole run.

    ``time_limit_s``: seconds from the start after which every wait raises `TimeLimitError`.
    """

    time_limit_s: float | None = None
    started_s: float = field(default_factory=time.monotonic)
    interrupted: threading.Event = field(default_factory=threading.Event)

    def now_s(self) -> float:
        """Monotonic seconds since the run began."""
        return time.monotonic() - self.started_s

    def time_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def wait_until(self, condition: Callable[[], T], timeout_s: float, what: str) -> T:
        """Return the condition's first true value.

        The condition is asked at least once and then every `POLL_S` seconds. Raises `WaitTimeoutError`
        naming ``what`` after ``timeout_s`` seconds, and `TimeLimitError` when the whole run's limit
        ends first.
        """
        deadline_s = self.now_s() + timeout_s
        while True:
            self.check_limit(what)
            value = condition()
            if value:
                return value
            if self.now_s() >= deadline_s:
                raise WaitTimeoutError(f"waited {timeout_s:g} s in vain for {what}")
            self.interrupted.wait(POLL_S)

    def check_limit(self, what: str) -> None:
        """Raise `TimeLimitError` once the whole run's limit is used up."""
        if self.time_limit_s is not None and self.now_s() >= self.time_limit_s:
            raise TimeLimitError(f"the time limit of {self.time_limit_s:g} s ended the run while waiting for {what}")
