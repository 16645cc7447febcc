"""Clocks whose time passes only where a test lets it pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.errors import WaitTimeoutError

ROUNDS = 20
NOW_MS = 100_000_000


@dataclass
class TickingClock:
    """A condition takes one second each time it is evaluated. ``actions`` records waits, ``bounds_s`` their bounds."""

    now: float = 0.0
    actions: list[str] = field(default_factory=list)
    bounds_s: list[float] = field(default_factory=list)

    def now_s(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    def wait_until(self, condition: Callable[[], Any], timeout_s: float, description: str) -> Any:
        self.actions.append(f"wait for {description}")
        self.bounds_s.append(timeout_s)
        for _ in range(ROUNDS):
            if value := condition():
                return value
            self.now += 1
        raise WaitTimeoutError(description)

    def every(self, _period_s: float, _action: Callable[[], None], name: str) -> IdleRoutine:
        self.actions.append(f"begin {name}")
        return IdleRoutine()


class JumpingClock(TickingClock):
    """Its time passes only in waits, and there in steps of ``step_s``, after each of which ``passing`` is called."""

    step_s = 0.1
    passing: Callable[[], None] = staticmethod(lambda: None)

    def wait_until(self, condition: Callable[[], Any], timeout_s: float, description: str) -> Any:
        deadline = self.now + timeout_s
        while not (value := condition()):
            self.now += self.step_s
            if self.now >= deadline:
                raise WaitTimeoutError(description)
            self.passing()
        return value


class IdleRoutine:
    """A routine that never does anything."""

    def stop(self) -> None:
        """It has not begun, and does not fail."""

    raise_if_failed = stop
