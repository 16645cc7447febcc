"""Random runs by the thousand, one job after another, and the smallest schedule of each finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.sessions import CHECKS
from harness.model_checking.explore.schedule_generator import Odds, RandomSchedule, draw
from harness.model_checking.explore.shrink import cost, has_consequence, is_wrong, shrink
from harness.model_checking.explore.statistics import RunStatistics, found_by_checkers
from harness.model_checking.explore.sweep import check_runs, partitioned_session
from harness.run_folder.store import new_run_id
from harness.schedules.replay import why_not_replayable
from harness.schedules.schedule import Schedule, in_order
from harness.spark.spec import MANY_RUNS
from harness.spark.workspace_session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from harness.spark.options import SparkOptions

RUNS_A_CORE: Final = 1000
"""Runs of a job for each core: with fewer, planning takes longer than computing; more would fill its memory."""
SHRUNK: Final = 8
"""How many runs with an anomaly are tried for its smallest schedule."""


@dataclass(frozen=True)
class SweepResult:
    """The statistics of the runs, and the smallest schedule of each finding and of each consequence by name."""

    statistics: RunStatistics
    smallest: Mapping[str, RandomSchedule]
    smallest_of_consequences: Mapping[str, RandomSchedule] = field(default_factory=dict)


def explore_random_runs(
    odds: Odds, seeds: range, spark: SparkOptions, on_progress: Callable[[RunStatistics], None]
) -> SweepResult:
    """Sweep in a Spark session of its own. Raises as `session_of` does."""
    with (
        Workspace(f"explore-{new_run_id()}", Path.cwd()) as workspace,
        session_of(workspace, find_java(), spark, [], CHECKS, settings=MANY_RUNS, outlives_jobs=True) as session,
    ):
        return sweep(session, odds, seeds, on_progress)


def sweep(session: SparkSession, odds: Odds, seeds: range, on_progress: Callable[[RunStatistics], None]) -> SweepResult:
    """Simulate and check the runs of all seeds, one job after another; calls ``on_progress`` after each."""
    statistics, size = RunStatistics(), RUNS_A_CORE * session.sparkContext.defaultParallelism
    session = partitioned_session(session)
    for first in range(seeds.start, seeds.stop, size):
        numbers = range(first, min(first + size, seeds.stop))
        statistics.add(len(numbers), check_runs(session, numbers, partial(draw, odds=odds)))
        on_progress(statistics)
    smallest, of_consequences = (
        {name: _smallest(name, some[:SHRUNK], odds, leads_there) for name, some in sorted(seeds_by_name.items())}
        for seeds_by_name, leads_there in (
            (statistics.seeds_by_anomaly, is_wrong),
            (statistics.seeds_by_consequence, has_consequence),
        )
    )
    _confirm(session, smallest, statistics)
    return SweepResult(statistics, smallest, of_consequences)


def _smallest(
    name: str, seeds: list[int], odds: Odds, leads_there: Callable[[RandomSchedule, str], bool]
) -> RandomSchedule:
    """Return the smallest schedule of a few seeds, preferably a schedule that can be replayed."""
    ways = [shrink(draw(seed, odds), name, leads_there) for seed in seeds]
    return min(ways, key=lambda way: (not is_replayable(name, way), cost(way)))


def is_replayable(name: str, way: RandomSchedule) -> bool:
    """Whether real brokers can replay a schedule."""
    return why_not_replayable(Schedule(in_order(*way.steps), name)) is None


def _confirm(session: SparkSession, smallest: Mapping[str, RandomSchedule], statistics: RunStatistics) -> None:
    """Have the checkers judge the smallest schedules too: they were found by the model's state alone."""
    if not smallest:
        return
    ways = list(smallest.values())
    confirmed = {
        (run, name) for run, _, name in found_by_checkers(check_runs(session, range(len(ways)), ways.__getitem__))
    }
    for number, name in enumerate(smallest):
        if (str(number), name) not in confirmed:
            statistics.amiss["smallest schedules that checkers find nothing in"].append(
                f"{name}: {'; '.join(map(str, smallest[name].steps))}"
            )
