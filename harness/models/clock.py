"""Virtual time, which passes only where something happens: a queue of due actions, instead of threads and waiting.

There is one thread: while a routine waits, the others continue. Every run begins at the same moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeVar

import greenlet

from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import Routine

T = TypeVar("T")

EPOCH_MS: Final = 1_767_225_600_000
"""The first moment of 2026, UTC."""
POLL_S: Final = 0.05
"""Actions that are due within that time are executed before a condition is evaluated again, as with a real clock."""


@dataclass
class VirtualClock:
    """Implements `harness.host.clock.Clock`. ``check_limit``: called before each evaluation of a condition; may raise.

    ``takes_turns``: all others continue while a routine waits for its condition, as if it had a separate thread.
    Otherwise they continue inside its wait. ``_turns``: routines that take turns and have not ended their action.
    """

    check_limit: Callable[[str], None] = lambda _: None
    takes_turns: bool = False
    _now_s: float = 0.0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _turns: set[greenlet.greenlet] = field(default_factory=set)

    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._now_s

    def time_ms(self) -> int:
        """Milliseconds since the epoch, as brokers stamp them."""
        return EPOCH_MS + round(self._now_s * 1000)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Execute an action after a delay; actions that are due at the same moment are executed in call order."""
        heappush(self._due, (self._now_s + delay_s, next(self._numbers), action))

    def wait_until(self, condition: Callable[[], T], timeout_s: float, description: str) -> T:
        """Let time pass until the condition has a true value, and return it. Raises `WaitTimeoutError`."""
        deadline_s, me = self._now_s + timeout_s, greenlet.getcurrent()
        while True:
            self.check_limit(description)
            if value := condition():
                return value
            if self._now_s >= deadline_s:
                raise WaitTimeoutError(f"timed out after {timeout_s:g} s waiting for {description}", timeout_s)
            if me in self._turns and me.parent is not None:
                self.after(min(POLL_S, deadline_s - self._now_s), me.switch)
                me.parent.switch()
            else:
                self._advance(deadline_s)

    def every(self, period_s: float, action: Callable[[], None], name: str) -> Routine:
        """Repeat an action, each time this long after the end of the last time."""
        return _VirtualRoutine(self, period_s, action, name)

    def take_turn(self, action: Callable[[], None]) -> None:
        """Execute an action until it ends or waits; then it continues without its caller."""
        if not self.takes_turns:
            action()
            return
        turn = greenlet.greenlet(action)
        self._turns.add(turn)
        turn.switch()
        self._turns = {turn for turn in self._turns if not turn.dead}

    @contextmanager
    def taking_turns(self) -> Iterator[None]:
        """Let routines take turns. Routines that still wait when the block ends are ended where they wait."""
        self.takes_turns = True
        try:
            yield
        finally:
            for turn in self._turns:
                turn.throw()

    def _advance(self, until_s: float) -> None:
        if not self._due or self._due[0][0] > until_s:
            self._now_s = until_s
            return
        soon_s = min(until_s, self._due[0][0] + POLL_S)
        while self._due and self._due[0][0] <= soon_s:
            at_s, _, action = heappop(self._due)
            # If an action has waited, the ones after it are late.
            self._now_s = max(self._now_s, at_s)
            action()


@dataclass
class _VirtualRoutine:
    clock: VirtualClock
    period_s: float
    action: Callable[[], None]
    name: str
    is_stopped: bool = False
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.clock.after(self.period_s, lambda: self.clock.take_turn(self._act))

    def stop(self) -> None:
        self.is_stopped = True

    def raise_if_failed(self) -> None:
        if self.error is not None:
            raise HarnessError(f"{self.name} failed: {self.error}") from self.error

    def _act(self) -> None:
        try:
            if not self.is_stopped:
                self.action()
        except Exception as error:  # noqa: BLE001  (surfaces in raise_if_failed)
            self.error, self.is_stopped = error, True
        if not self.is_stopped:
            self._begin()
