"""The number of simulated outages that `harness explore --runs` checks in a minute, next to the simulation alone.

Each round sweeps so many seeds in one Spark session (full checking: all checkers of real runs, and the model's own
state), then plays the same seeds in a bare loop of this process, without evidence or checks. The first job of a session
also pays for classes and compiling, and is timed apart. ``cpu`` is processor time of all processes: other work on the
machine counts for less there. Last, the time that one run takes by itself, with default timers and all its evidence.

    python bench/explore.py --runs 4000 --rounds 3
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import psutil
from rich.console import Console
from rich.table import Table

from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.sessions import CHECKS
from harness.model_checking.explore.random_runs import RunStatistics, check_runs, partitioned_session, rows_of
from harness.model_checking.explore.random_schedules import draw
from harness.models.world.steps import play
from harness.models.world.world import BEGIN_MS, DAY_MS, Rules
from harness.run_folder.store import new_run_id
from harness.spark.launch import MANY_RUNS
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of

ALONE = 300
"""Of how many runs the time of one by itself is taken."""


class Took(NamedTuple):
    """Seconds of a clock on the wall, and of processors."""

    wall_s: float
    cpu_s: float

    def per_minute(self, runs: int) -> float:
        """Return how many runs go into a minute."""
        return 60 * runs / self.wall_s

    def cpu_ms(self, runs: int) -> float:
        """Return milliseconds of processor time a run."""
        return 1000 * self.cpu_s / runs


class Stopwatch:
    """Times all processes of this one."""

    def __init__(self) -> None:
        """Begin."""
        self._me = psutil.Process()
        self._wall_s, self._cpu_s = time.perf_counter(), self._all_s()

    def stop(self) -> Took:
        """Return what has passed."""
        return Took(time.perf_counter() - self._wall_s, self._all_s() - self._cpu_s)

    def _all_s(self) -> float:
        total = 0.0
        for process in (self._me, *self._me.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total


def bare(seeds: range, rules: Rules) -> float:
    """Play seeds and keep nothing; return in how many days of virtual time, one a run."""
    days = 0.0
    for seed in seeds:
        drawn = draw(seed, rules)
        days += (play(drawn.rules, drawn.steps).now_ms - BEGIN_MS) / DAY_MS
    return days / len(seeds)


@click.command()
@click.option("--runs", default=4000, show_default=True, help="Runs of each job.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--with", "with_", is_flag=True, help="Replicas compact together.")
def main(runs: int, rounds: int, *, with_: bool) -> None:
    """Time sweeps and the simulation alone, round by round."""
    rules, tally = Rules(coordinated=with_), RunStatistics()
    swept: list[Took] = []
    alone: list[Took] = []
    with (
        Workspace(f"bench-{new_run_id()}", Path.cwd()) as workspace,
        session_of(
            workspace, find_java(), SparkOptions(), [], CHECKS, settings=MANY_RUNS, outlives_jobs=True
        ) as session,
    ):
        dealt = partitioned_session(session)
        for number in range(rounds + 1):
            seeds = range(number * runs, (number + 1) * runs)
            watch = Stopwatch()
            tally.add(runs, check_runs(dealt, seeds, partial(draw, rules=rules)))
            swept.append(watch.stop())
            watch = Stopwatch()
            days = bare(seeds, rules)
            alone.append(watch.stop())
    table = Table("what", "runs a minute", "cpu ms a run", "x alone, cpu", box=None)
    for what, measured in (
        ("first job, checked", swept[:1]), ("later jobs, checked", swept[1:]), ("simulated alone", alone[1:]),
    ):  # fmt: skip
        rate, cpu_ms = (
            median(took) for took in zip(*((t.per_minute(runs), t.cpu_ms(runs)) for t in measured), strict=True)
        )
        ratio = cpu_ms / median(one.cpu_ms(runs) for one in alone)
        table.add_row(what, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{ratio:.1f}")
    console = Console(width=120)
    console.print(table)
    times_ms = []
    for seed in range(ALONE):
        began_s = time.perf_counter()
        rows_of([seed], partial(draw, rules=rules))
        times_ms.append(1000 * (time.perf_counter() - began_s))
    console.print(
        f"one run by itself, {days:.1f} days of default timers, with its evidence: median {median(times_ms):.1f} ms, "
        f"longest {max(times_ms):.1f} ms of {ALONE}"
    )
    console.print(f"{tally.runs:,} runs, {tally.exposed:,} exposed, {tally.verdict}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
