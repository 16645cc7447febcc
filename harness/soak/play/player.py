"""The player of a round: asks a generator for operations, gives each to its process in time, and records its time.

Every process is a routine of the clock that executes its operations in turn. Processes of real clients block
separately, and processes of a simulated cluster take turns on its virtual clock.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError, WaitTimeoutError
from harness.schedules.generators import Context, Nothing
from harness.schedules.schedule import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.host.clock import Clock
    from harness.schedules.generators import Generator, Situation
    from harness.schedules.operations.operation import Operation

PERIOD_S: Final = 0.02
"""The period in which an idle process looks for an operation."""
MOST_WAITING: Final = 8
"""Operations that wait for a process; one with so many is busy."""
LATEST_S: Final = 0.05
"""The generator is asked again if its next step is later than this: meanwhile a busy client may have become idle, or a
fault may have changed the draw."""
BOUND_S: Final = 90.0


@dataclass
class Process:
    """The queue of one process; ``play`` executes one operation."""

    name: str
    play: Callable[[Operation], None]
    most_waiting: int = MOST_WAITING
    _waiting: deque[Operation] = field(default_factory=deque)

    @property
    def is_busy(self) -> bool:
        """Return whether the process takes no further operation now."""
        return len(self._waiting) >= self.most_waiting

    @property
    def is_idle(self) -> bool:
        """Return whether the process has executed all its operations."""
        return not self._waiting

    @property
    def at(self) -> str:
        """The description of the current or next operation; empty for an idle process."""
        return str(self._waiting[0]) if self._waiting else ""

    def give(self, operation: Operation) -> None:
        """Have it done after all that it was given before."""
        self._waiting.append(operation)

    def work(self) -> None:
        """Do what waits. Called by its routine alone."""
        while self._waiting:
            # Off the queue only when it is done: until then the process is not idle.
            self.play(self._waiting[0])
            self._waiting.popleft()


def at_once(clock: Clock, actions: Mapping[str, Callable[[], None]], bound_s: float, check: Callable[[], None]) -> None:
    """Execute all actions concurrently, each once, by name. Raises the error of an action, or `WaitTimeoutError`."""
    remaining = dict(actions)

    def once(name: str) -> None:
        if name in remaining:
            actions[name]()
            del remaining[name]

    routines = [clock.every(PERIOD_S, partial(once, name), name) for name in actions]

    def are_done() -> bool:
        check()
        for routine in routines:
            routine.raise_if_failed()
        return not remaining

    try:
        clock.wait_until(are_done, bound_s, f"{', '.join(actions)} to end")
    finally:
        for routine in routines:
            routine.stop()


@dataclass
class Player:
    """The processes of a round while they run. ``check`` raises what went wrong in the background.

    ``steps``: the operations so far, in order, each with the time when it began.
    """

    clock: Clock
    processes: Mapping[str, Process]
    check: Callable[[], None]
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have every process work throughout the block."""
        routines = [
            self.clock.every(PERIOD_S, process.work, f"process {process.name}") for process in self.processes.values()
        ]
        check = self.check

        def checked() -> None:
            check()
            for routine in routines:
                routine.raise_if_failed()

        self.check = checked
        try:
            yield
        except BaseException:
            for routine in routines:
                # One that hangs as well is a consequence, and must not hide what went wrong.
                with suppress(HarnessError):
                    routine.stop()
            raise
        for routine in routines:
            routine.stop()

    def play(self, generator: Generator, seed: int, situation: Situation, least_s: float = 0.0) -> None:
        """Play a generator until it is done, for ``least_s`` at least; processes may still have something to do.

        Raises what `check` raises.
        """
        began_s = self.clock.now_s()
        while True:
            now_s = self.clock.now_s() - began_s
            busy = frozenset(name for name, process in self.processes.items() if process.is_busy)
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
        """Wait until every process has done everything. Raises `WaitTimeoutError` after `BOUND_S`, with who has not."""

        def are_idle() -> bool:
            self.check()
            return all(process.is_idle for process in self.processes.values())

        try:
            self.clock.wait_until(are_idle, BOUND_S, "every process to end its operations")
        except WaitTimeoutError as error:
            busy = "; ".join(
                f"{name} is at {process.at}" for name, process in self.processes.items() if not process.is_idle
            )
            raise WaitTimeoutError(f"{error}: {busy}") from error

    def _wait(self, until_s: float) -> None:
        def is_over() -> bool:
            self.check()
            return self.clock.now_s() >= until_s

        if self.clock.now_s() < until_s:
            self.clock.wait_until(is_over, until_s - self.clock.now_s() + BOUND_S, "the next operation")
