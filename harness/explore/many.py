"""Random runs by the thousand, job after job, and the smallest schedule of whatever is found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.explore.chance import Drawn, Odds, draw
from harness.explore.shrink import cost, shrink
from harness.explore.sweep import dealing, told
from harness.explore.tally import Tally, found_by_checkers
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.session import session_of
from harness.plan.schedule import Schedule, scenario_of
from harness.run_folder.store import new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from harness.spark.options import SparkOptions

RUNS_A_CORE: Final = 1000
"""How many runs of a job each core gets: fewer would have it plan more than compute, more would fill its memory."""
SHRUNK: Final = 8
"""How many runs that show an anomaly are tried for its smallest schedule."""


@dataclass(frozen=True)
class Swept:
    """What came of the runs, and by name the smallest schedule of what was found."""

    tally: Tally
    smallest: Mapping[str, Drawn]


def explore_many(odds: Odds, seeds: range, spark: SparkOptions, done: Callable[[Tally], None]) -> Swept:
    """Sweep in a Spark of its own. Raises as `session_of` does."""
    with (
        Workspace(f"explore-{new_run_id()}", Path.cwd()) as workspace,
        session_of(workspace, find_java(), spark, [], many_runs=True) as session,
    ):
        return sweep(session, odds, seeds, done)


def sweep(session: SparkSession, odds: Odds, seeds: range, done: Callable[[Tally], None]) -> Swept:
    """Simulate and check the runs of all seeds, a job after the other; ``done`` is told after each."""
    tally, size = Tally(), RUNS_A_CORE * session.sparkContext.defaultParallelism
    session = dealing(session)
    for first in range(seeds.start, seeds.stop, size):
        numbers = range(first, min(first + size, seeds.stop))
        tally.add(len(numbers), told(session, numbers, partial(draw, odds=odds)))
        done(tally)
    smallest = {name: _smallest(name, found[:SHRUNK], odds) for name, found in sorted(tally.found.items())}
    _confirm(session, smallest, tally)
    return Swept(tally, smallest)


def _smallest(name: str, seeds: list[int], odds: Odds) -> Drawn:
    """Return the smallest schedule that a few seeds lead to, one that can be replayed where there is any."""
    ways = [shrink(draw(seed, odds), name) for seed in seeds]
    return min(ways, key=lambda way: (not is_replayable(name, way), cost(way)))


def is_replayable(name: str, way: Drawn) -> bool:
    """Whether real brokers can be put through a schedule."""
    try:
        scenario_of(Schedule(name, "", "", way.steps))
    except UsageError:
        return False
    return True


def _confirm(session: SparkSession, smallest: Mapping[str, Drawn], tally: Tally) -> None:
    """Have the checkers judge the smallest schedules too: it was the model's state that told which are wrong."""
    if not smallest:
        return
    ways = list(smallest.values())
    found = {(run, name) for run, _, name in found_by_checkers(told(session, range(len(ways)), ways.__getitem__))}
    for number, name in enumerate(smallest):
        if (str(number), name) not in found:
            tally.amiss["smallest schedules that checkers find nothing in"].append(
                f"{name}: {'; '.join(smallest[name].steps)}"
            )
