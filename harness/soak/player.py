"""Plays a generator: asks it for operations, gives each to its process in time, and remembers what was begun and when.

Every process is a routine of the clock that takes its operations one after another, so that the processes of real
clients block each for itself, and those of a simulated cluster take turns on its virtual clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.soak.generators import Context, Nothing
from harness.soak.operations import Step
from harness.soak.situation import Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.host.clock import Clock
    from harness.soak.generators import Generator
    from harness.soak.operations import Operation

PERIOD_S: Final = 0.02
"""How often an idle process looks for an operation."""
MOST_WAITING: Final = 8
"""Operations that wait for a process; one with so many is busy."""
LATEST_S: Final = 0.5
"""A generator without a step is asked again after that time at the latest."""


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


@dataclass(frozen=True)
class Played:
    """The steps that were begun, in order, each at the time when it was."""

    steps: tuple[Step, ...]


def play(  # noqa: PLR0917
    generator: Generator,
    seed: int,
    clock: Clock,
    processes: Mapping[str, Process],
    situation: Situation,
    bound_s: float,
    check: Callable[[], None] = lambda: None,
) -> Played:
    """Play a generator until it is done and every process is idle.

    ``check`` raises what went wrong in the background. Raises `WaitTimeoutError` where a process does not end its
    operations within ``bound_s`` after the last one, and what an operation raises.
    """
    began_s, steps = clock.now_s(), list[Step]()
    routines = [clock.every(PERIOD_S, one.work, f"process {one.name}") for one in processes.values()]

    def checked() -> None:
        check()
        for routine in routines:
            routine.raise_if_failed()

    def wait(until_s: float) -> None:
        """Wait until a time of the round, or for as long as a generator is to be left alone."""

        def is_over() -> bool:
            checked()
            return clock.now_s() - began_s >= until_s

        if not is_over():
            clock.wait_until(is_over, until_s + bound_s, "the next operation")

    try:
        while True:
            now_s = clock.now_s() - began_s
            busy = frozenset(name for name, one in processes.items() if one.is_busy)
            answer, after = generator.draw(Context(seed, now_s, len(steps), busy, situation))
            if answer is Nothing.DONE and not busy:
                break
            if not isinstance(answer, Step):
                generator = after
                wait(now_s + PERIOD_S)
                continue
            if answer.at_s > now_s:
                # Something may have changed by then: it is drawn again where that is long.
                wait(min(answer.at_s, now_s + LATEST_S))
                if answer.at_s > now_s + LATEST_S:
                    continue
            step = Step(round(clock.now_s() - began_s, 3), answer.operation)
            generator, situation = after, situation.after(step)
            steps.append(step)
            processes[step.operation.process].give(step.operation)

        def all_idle() -> bool:
            checked()
            return all(one.is_idle for one in processes.values())

        clock.wait_until(all_idle, bound_s, "every process to end its operations")
    finally:
        for routine in routines:
            routine.stop()
    return Played(tuple(steps))
