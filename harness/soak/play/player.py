"""The player of a round: asks a generator for operations, gives each to its process in time, and records its time.

Every process is a routine of the clock that executes its operations in turn. Processes of real clients block
separately, and processes of a simulated cluster take turns on its virtual clock.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from harness.cluster.cluster import Cluster
from harness.cluster.routines import PERIOD_S, repeated
from harness.errors import WaitTimeoutError
from harness.schedules.generators import Context, Generator, Situation
from harness.schedules.operations import Operation
from harness.schedules.schedule import Step

MOST_WAITING: Final = 8
"""Operations that wait for a process; one with so many is busy."""
LATEST_S: Final = 0.05
"""The generator is asked again if its next step is later than this: meanwhile a busy client may have become idle, or a
fault may have changed the draw."""
BOUND_S: Final = 90.0


@dataclass
class Process:
    """The queue of one process, ``waiting``: the first operation is being executed, by ``play``."""

    play: Callable[[Operation], None]
    most_waiting: int = MOST_WAITING
    waiting: deque[Operation] = field(default_factory=deque)

    def work(self) -> None:
        """Execute all operations in the queue. Called by its routine alone."""
        while self.waiting:
            # Off the queue only when it is done: until then the process is not idle.
            self.play(self.waiting[0])
            self.waiting.popleft()


@dataclass
class Player:
    """The processes of a round. ``steps``: the operations so far, in order, each with the time when it began."""

    cluster: Cluster
    processes: Mapping[str, Process]
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have every process work throughout the block."""
        work = {f"process {name}": process.work for name, process in self.processes.items()}
        with repeated(self.cluster, work) as self.cluster:
            yield

    def play(self, generator: Generator, seed: int, situation: Situation, least_s: float = 0.0) -> None:
        """Play a generator to its end, for ``least_s`` at least; processes may continue. Raises what checks raise."""
        clock = self.cluster.clock
        began_s = clock.now_s()
        rest: Generator | None = generator
        while rest is not None:
            now_s = clock.now_s() - began_s
            busy = frozenset(name for name, p in self.processes.items() if len(p.waiting) >= p.most_waiting)
            drawn, after = rest(Context(seed, now_s, len(self.steps), busy, situation))
            if drawn is None:
                rest = after
                if after is not None:
                    self._wait_for_time(began_s + now_s + PERIOD_S)
                continue
            self._wait_for_time(began_s + min(drawn.at_s, now_s + LATEST_S))
            if drawn.at_s > now_s + LATEST_S:
                continue
            step = replace(drawn, at_s=round(clock.now_s() - began_s, 3))
            rest, situation = after, situation.after(step)
            self.steps.append(step)
            self.processes[step.operation.process].waiting.append(step.operation)
        self._wait_for_time(began_s + least_s)

    def drain(self) -> None:
        """Wait until every process has done everything. Raises `WaitTimeoutError` after `BOUND_S`, with who has not."""
        waiting = {name: process.waiting for name, process in self.processes.items()}
        try:
            self.cluster.wait(lambda: not any(waiting.values()), "every process to end its operations", BOUND_S)
        except WaitTimeoutError as error:
            busy = "; ".join(f"{name} is at {queue[0]}" for name, queue in waiting.items() if queue)
            raise WaitTimeoutError(f"{error}: {busy}") from error

    def _wait_for_time(self, until_s: float) -> None:
        clock = self.cluster.clock
        if clock.now_s() < until_s:
            self.cluster.wait(lambda: clock.now_s() >= until_s, "the next operation", until_s - clock.now_s() + BOUND_S)
