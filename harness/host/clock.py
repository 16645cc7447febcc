"""Clocks that are passed to their users: bounded waits for conditions, periodic actions, and texts of times.

A simulated cluster has a clock with the same methods (`harness.models.clock`).
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from harness.errors import HarnessError, TimeLimitError, WaitTimeoutError

T = TypeVar("T")

POLL_S = 0.05
"""The time between two evaluations of a condition. Short compared with the fastest timer (segment.ms=100)."""
JOIN_TIMEOUT_S = 60.0
"""An action may block for as long as a client's operation."""
UNITS_S: Final = {"days": 86_400, "h": 3_600, "min": 60}


class Routine(Protocol):
    """An action that is repeated in the background, until `stop`."""

    def stop(self) -> None:
        """Stop the repetition, and wait for its end. Raises `HarnessError` if the action does not end."""

    def raise_if_failed(self) -> None:
        """Raise the error that ended the repetition as `HarnessError`, with the routine's name."""


class Clock(Protocol):
    """The time for the player and the workloads."""

    def now_s(self) -> float:
        """Return the monotonic seconds since the run began."""

    def time_ms(self) -> int:
        """Return the wall-clock milliseconds since the epoch, as brokers do."""

    def wait_until(self, condition: Callable[[], T], timeout_s: float, description: str) -> T:
        """Return the condition's first true value; see `RealClock.wait_until`."""

    def every(self, period_s: float, action: Callable[[], None], name: str) -> Routine:
        """Repeat an action in the background, with this pause before each time; an error ends the repetition."""


@dataclass(frozen=True)
class RealClock:
    """The real time. ``time_limit_s``: seconds after the start when every wait raises `TimeLimitError`."""

    time_limit_s: float | None = None
    started_s: float = field(default_factory=time.monotonic)

    def now_s(self) -> float:
        """See `Clock`."""
        return time.monotonic() - self.started_s

    def time_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    def wait_until(self, condition: Callable[[], T], timeout_s: float, description: str) -> T:
        """Return the condition's first true value.

        The condition is evaluated at least once and then every `POLL_S` seconds. Raises `WaitTimeoutError` with the
        ``description`` of the awaited event after ``timeout_s`` seconds, and `TimeLimitError` after the run's time
        limit.
        """
        deadline_s = self.now_s() + timeout_s
        while True:
            self.check_limit(description)
            if value := condition():
                return value
            if self.now_s() >= deadline_s:
                raise WaitTimeoutError(f"timed out after {timeout_s:g} s waiting for {description}", timeout_s)
            time.sleep(POLL_S)

    def every(self, period_s: float, action: Callable[[], None], name: str) -> Routine:
        """See `Clock`; the action runs in a separate thread."""
        return ThreadRoutine(period_s, action, name)

    def check_limit(self, description: str) -> None:
        """Raise `TimeLimitError` after the run's time limit."""
        if self.time_limit_s is not None and self.now_s() >= self.time_limit_s:
            raise TimeLimitError(
                f"the time limit of {self.time_limit_s:g} s ended the run while waiting for {description}"
            )


@dataclass
class ThreadRoutine:
    """Implements `Routine` with a thread, which starts immediately."""

    period_s: float
    action: Callable[[], None]
    name: str

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def let_end(self) -> None:
        """End the repetition without waiting for an action under way, which changes nothing."""
        self._stop.set()

    def stop(self) -> None:
        """See `Routine`."""
        self.let_end()
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            raise HarnessError(f"{self.name} did not stop within {JOIN_TIMEOUT_S:g} s")

    def raise_if_failed(self) -> None:
        """See `Routine`."""
        if self._error is not None:
            # Some errors have no message.
            why = str(self._error) or type(self._error).__name__
            raise HarnessError(f"{self.name} failed: {why}") from self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.period_s):
                self.action()
        except BaseException as error:  # noqa: BLE001  (surfaces in raise_if_failed)
            self._error = error


@dataclass
class Stages:
    """Stages one after another, with the seconds of each by name. ``report`` is called with each that begins."""

    now_s: Callable[[], float]
    report: Callable[[str], None] = lambda _: None
    took_s: dict[str, float] = field(default_factory=dict)
    _current: tuple[str, float] | None = None

    def begin(self, name: str) -> None:
        """End the current stage, and begin this one."""
        self.end()
        self._current = (name, self.now_s())
        self.report(name)

    def end(self) -> None:
        """Add the seconds of the current stage, if any."""
        if self._current is not None:
            name, since_s = self._current
            self.took_s[name] = round(self.took_s.get(name, 0.0) + self.now_s() - since_s, 3)
            self._current = None


def time_text(time_ms: int) -> str:
    """Return a time in UTC, to the second."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):  # clients choose timestamps, and users retentions
        return f"{time_ms} ms"


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit that fits into it twice."""
    unit, unit_s = next(((unit, unit_s) for unit, unit_s in UNITS_S.items() if seconds >= unit_s * 2), ("s", 1))
    return f"{round(seconds / unit_s, 1):g} {unit}"
