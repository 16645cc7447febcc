"""Explores cases, each in a separate process, and summarizes the results."""

import gc
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import psutil

from harness.errors import HarnessError
from harness.judge.verdict import decide, worst
from harness.model_checking.explore.cases import AnyCase
from harness.models.walk.exhaustive import Explored
from harness.schedules.operations import Operation
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.schedules.schedule import NO_PLAN, RoundPlan, RoundTopic, Schedule, in_order, write_schedule

OF_GROUPS: Final = RoundPlan(topics=(RoundTopic(CONSUMER_OFFSETS, 1, {}),))
"""The plan of a schedule whose records are committed offsets of a group."""
KILLED: Final = "was killed, as by a kernel that is out of memory: give fewer --processes, or less --most-states"


@dataclass(frozen=True)
class WalkResult:
    """A case, the result of its exploration, and the seconds it took."""

    case: AnyCase
    explored: Explored
    took_s: float

    @property
    def verdict(self) -> str:
        """An anomaly where a way leads to one; clean only where every state was seen."""
        return decide(list(self.explored.wrong), (), "every state was seen" if self.explored.is_whole else None)[0]


def walk(
    cases: Sequence[AnyCase],
    *,
    processes: int,
    most_states: int,
    first_only: bool,
    on_progress: Callable[[WalkResult], None],
) -> list[WalkResult]:
    """Explore cases, several at once; call ``on_progress`` as each ends. Returns the results in the cases' order.

    Raises `HarnessError` where a process is killed.
    """
    walked: dict[AnyCase, WalkResult] = {}
    limits = {"most_states": most_states, "first_only": first_only}
    # New processes: a fork would copy the caller's threads in the middle of their work.
    context, ahead = get_context("forkserver"), deque(cases)
    running: dict[Any, tuple[Any, Any, AnyCase]] = {}
    try:
        while ahead or running:
            while ahead and len(running) < processes:
                case = ahead.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_walk, args=(case, sender, os.getpid()), kwargs=limits)
                process.start()
                sender.close()
                running[receiver] = receiver, process, case
            for ended in wait(running):
                receiver, process, case = running.pop(ended)
                try:
                    walked[case] = receiver.recv()
                except EOFError as error:
                    process.join()
                    how = KILLED if process.exitcode < 0 else "failed: the error is above"
                    raise HarnessError(f"the process that explored '{case.title}' {how}") from error
                on_progress(walked[case])
    finally:
        for _, process, _ in running.values():
            process.kill()
    return [walked[case] for case in cases]


def _end_with(owner: int) -> None:
    """Make this process exit when its owner does, however the owner ends; Ctrl-C is for the owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch_owner() -> None:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(owner).wait()
        os._exit(1)

    threading.Thread(target=watch_owner, daemon=True).start()


def _walk(case: AnyCase, sender: Connection, owner: int, *, most_states: int, first_only: bool) -> None:
    _end_with(owner)
    began_s = time.monotonic()
    # States refer to each other and none is released: garbage collection would find nothing.
    gc.disable()
    explored = case.walk(most_states=most_states, first_only=first_only)
    sender.send(WalkResult(case, explored, time.monotonic() - began_s))


def shortest(walked: Sequence[WalkResult]) -> dict[str, tuple[AnyCase, tuple[Operation, ...]]]:
    """Return the shortest way of all cases to each anomaly, with its case."""
    ways: dict[str, tuple[AnyCase, tuple[Operation, ...]]] = {}
    for result in walked:
        for name, steps in result.explored.wrong.items():
            if name not in ways or len(steps) < len(ways[name][1]):
                ways[name] = result.case, steps
    return ways


def write_schedules(
    out: Path, target: str, ways: Mapping[str, tuple[AnyCase, tuple[Operation, ...]]], *, of_groups: bool
) -> None:
    """Write ways to a folder as schedules, each with the name of its finding. ``of_groups``: records are offsets."""
    plan = OF_GROUPS if of_groups else NO_PLAN
    for name, (case, steps) in ways.items():
        write_schedule(out / f"{name}.json", Schedule(in_order(*steps), name, target, case.title, plan))


def summary(target: str, with_: Sequence[str], walked: Sequence[WalkResult]) -> dict[str, Any]:
    """Return the content of the printed JSON: the verdict over all cases, and the shortest way to each anomaly."""
    return {
        "verdict": worst([result.verdict for result in walked]),
        "target": {"name": target, "with": list(with_)},
        "cases": [
            {
                "case": result.case.title,
                "without": sorted(result.case.without),
                "verdict": result.verdict,
                "states": result.explored.states,
                "transitions": result.explored.transitions,
                "depth": result.explored.depth,
                "whole": result.explored.is_whole,
                "took_s": round(result.took_s, 3),
                "ways": {name: list(map(str, steps)) for name, steps in sorted(result.explored.wrong.items())},
            }
            for result in walked
        ],
    }
