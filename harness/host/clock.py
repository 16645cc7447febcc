"""Time as something that is passed in: bounded waits on conditions, and what is done again and again beside them.

A simulated cluster brings a clock of its own with the same verbs (`harness.models.clock`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from harness.errors import HarnessError, TimeLimitError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

POLL_S = 0.05
"""How often a condition is looked at again. Small against the fastest timer used (segment.ms=100)."""
JOIN_TIMEOUT_S = 60.0
"""An action may block for as long as a client's operation."""


class Routine(Protocol):
    """Something that is done again and again in the background, until `stop`."""

    def stop(self) -> None:
        """Begin it no more; it is over when this returns. Raises `HarnessError` where it does not end."""
        ...

    def raise_if_failed(self) -> None:
        """Raise what ended it before that, as `HarnessError` with its name."""
        ...


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

    def every(self, period_s: float, action: Callable[[], None], name: str) -> Routine:
        """Begin to do something again and again, with this pause before each time; an error ends it."""
        ...


@dataclass(frozen=True)
class RealClock:
    """Wall-clock time, with one limit on the whole run.

    ``time_limit_s``: seconds from the start after which every wait raises `TimeLimitError`.
    """

    time_limit_s: float | None = None
    started_s: float = field(default_factory=time.monotonic)

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
            time.sleep(POLL_S)

    def every(self, period_s: float, action: Callable[[], None], name: str) -> Routine:
        """Do it in a thread of its own."""
        return ThreadRoutine(period_s, action, name)

    def check_limit(self, what: str) -> None:
        """Raise `TimeLimitError` once the whole run's limit is used up."""
        if self.time_limit_s is not None and self.now_s() >= self.time_limit_s:
            raise TimeLimitError(f"the time limit of {self.time_limit_s:g} s ended the run while waiting for {what}")


@dataclass
class ThreadRoutine:
    """Implements `Routine`: a thread, which is there from the beginning."""

    period_s: float
    action: Callable[[], None]
    name: str

    def __post_init__(self) -> None:
        """Start it."""
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            raise HarnessError(f"{self.name} did not stop within {JOIN_TIMEOUT_S:g} s")

    def raise_if_failed(self) -> None:
        """Raise what ended the thread."""
        if self._error is not None:
            # Some errors have no words.
            why = str(self._error) or type(self._error).__name__
            raise HarnessError(f"{self.name} failed: {why}") from self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.period_s):
                self.action()
        except BaseException as error:  # noqa: BLE001  (surfaces in raise_if_failed)
            self._error = error
