"""Plays a generator: asks it for operations, gives each to its process in time, and remembers what was begun and when.

Every process is a routine of the clock that does its operations one after another, so that the processes of real
clients block each for itself, and those of a simulated cluster take turns on its virtual clock.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.soak.generators import Context, Nothing
from harness.soak.operations import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.host.clock import Clock
    from harness.soak.generators import Generator
    from harness.soak.operations import Operation
    from harness.soak.situation import Situation

PERIOD_S: Final = 0.02
"""How often an idle process looks for an operation."""
MOST_WAITING: Final = 8
"""Operations that wait for a process; one with so many is busy."""
LATEST_S: Final = 0.5
"""A generator whose next step is later than that is asked again, as faults may have changed what it would draw."""
BOUND_S: Final = 60.0


@dataclass
class Process:
    """What waits for one process; ``play`` does one operation."""

    name: str
    play: Callable[[Operation], None]
    most_waiting: int = MOST_WAITING
    _waiting: deque[Operation] = field(default_factory=deque)

    @property
    def is_busy(self) -> bool:
        """Whether it takes no further operation now."""
        return len(self._waiting) >= self.most_waiting

    @property
    def is_idle(self) -> bool:
        """Whether it has done everything."""
        return not self._waiting

    def give(self, operation: Operation) -> None:
        """Have it done after all that it was given before."""
        self._waiting.append(operation)

    def work(self) -> None:
        """Do what waits. Called by its routine alone."""
        while self._waiting:
            # Off the queue only when it is done: until then the process is not idle.
            self.play(self._waiting[0])
            self._waiting.popleft()


@dataclass
class Player:
    """The processes of a round while they run. ``check`` raises what went wrong in the background.

    ``steps``: what was begun so far, in order, each at the time when it was.
    """

    clock: Clock
    processes: Mapping[str, Process]
    check: Callable[[], None]
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have every process work throughout the block."""
        routines = [self.clock.every(PERIOD_S, one.work, f"process {one.name}") for one in self.processes.values()]
        check = self.check

        def checked() -> None:
            check()
            for routine in routines:
                routine.raise_if_failed()

        self.check = checked
        try:
            yield
        finally:
            for routine in routines:
                routine.stop()

    def play(self, generator: Generator, seed: int, situation: Situation, least_s: float = 0.0) -> None:
        """Play a generator until it is done, for ``least_s`` at least; processes may still have something to do.

        Raises what `check` raises.
        """
        began_s = self.clock.now_s()
        while True:
            now_s = self.clock.now_s() - began_s
            busy = frozenset(name for name, one in self.processes.items() if one.is_busy)
            answer, after = generator.draw(Context(seed, now_s, len(self.steps), busy, situation))
            if answer is Nothing.DONE:
                self._wait(began_s + least_s)
                return
            if not isinstance(answer, Step):
                generator = after
                self._wait(began_s + now_s + PERIOD_S)
                continue
            self._wait(began_s + min(answer.at_s, now_s + LATEST_S))
            if answer.at_s > now_s + LATEST_S:
                continue
            step = Step(round(self.clock.now_s() - began_s, 3), answer.operation)
            generator, situation = after, situation.after(step)
            self.steps.append(step)
            self.processes[step.operation.process].give(step.operation)

    def drain(self) -> None:
        """Wait until every process has done everything. Raises `WaitTimeoutError` after `BOUND_S`."""

        def are_idle() -> bool:
            self.check()
            return all(one.is_idle for one in self.processes.values())

        self.clock.wait_until(are_idle, BOUND_S, "every process to end its operations")

    def _wait(self, until_s: float) -> None:
        def is_over() -> bool:
            self.check()
            return self.clock.now_s() >= until_s

        if self.clock.now_s() < until_s:
            self.clock.wait_until(is_over, until_s - self.clock.now_s() + BOUND_S, "the next operation")
