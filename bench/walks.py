"""States per second and core of the walks of `harness explore`, by case, beside the same walk state by state.

Each case is walked whole in this process, one after another, first by `harness.models.walk.fast_walk` and then, for
cases of at most so many states, by `harness.models.walk.exhaustive.explore`. Seconds are of the processor. The spaces
are walked without symmetry, so that both visit the same states; the column `symmetric` has how many states `harness
explore` visits.

    python bench/walks.py --with coordinated --most-slowly 100000
"""

from __future__ import annotations

import gc
import os
import time
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from harness.model_checking.explore.cases import PROPOSALS, Case, cases
from harness.models.walk.exhaustive import Explored, explore
from harness.models.walk.fast_walk import fast_walk
from harness.targets import SIM_KAFKA

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_STATES = 10_000_000


def timed(walk: Callable[[], Explored]) -> tuple[Explored, float]:
    """Return the result of a walk, and the seconds of the processor that it took."""
    began_s = time.process_time()
    found = walk()
    return found, time.process_time() - began_s


def slowly(case: Case) -> Explored:
    """Walk a case state by state."""
    space = case.space(symmetric=False)
    return explore(space.start, space.following, space.wrong, most_states=MOST_STATES)


@click.command()
@click.option("--target", type=click.Choice(list(PROPOSALS)), default=SIM_KAFKA, show_default=True)
@click.option("--with", "with_", multiple=True, help="A proposal; repeatable.")
@click.option("--groups", is_flag=True, help="Cases of consumer groups.")
@click.option("--most-slowly", default=0, show_default=True, help="States up to which a case is walked twice.")
def main(target: str, with_: tuple[str, ...], most_slowly: int, *, groups: bool) -> None:
    """Time the cases of a target."""
    gc.disable()
    walked = [one for one in cases(target, with_=with_, without=(), groups=groups) if isinstance(one, Case)]
    # Compiled code is loaded, or compiled, before anything is timed.
    fast_walk(walked[0].space(symmetric=False), most_states=1)
    table, total_s, states = Table("case", "states", "symmetric", "s", "states/s", "slowly", box=None), 0.0, 0
    for case in walked:
        found, took_s = timed(partial(fast_walk, case.space(symmetric=False), most_states=MOST_STATES))
        total_s, states = total_s + took_s, states + found.states
        symmetric = case.walk(most_states=MOST_STATES, first_only=False).states
        rate = ""
        if found.states <= most_slowly:
            slow, slow_s = timed(partial(slowly, case))
            rate = f"{slow.states / slow_s:,.0f}"
        table.add_row(
            case.title, f"{found.states:,}", f"{symmetric:,}", f"{took_s:.2f}", f"{found.states / took_s:,.0f}", rate
        )
    table.add_row("all", f"{states:,}", "", f"{total_s:.2f}", f"{states / total_s:,.0f}", "")
    console = Console(width=130)
    console.print(table)
    console.print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
