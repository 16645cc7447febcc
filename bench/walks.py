"""Processor seconds and states per second of the walks of `harness explore`, by case.

Each case is walked whole, in a new process, as `harness explore` does it.

    taskset -c 0 python bench/walks.py --with coordinated
"""

from __future__ import annotations

import gc
import os
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from harness.model_checking.explore.cases import PROPOSALS, cases
from harness.targets import SIM_KAFKA

if TYPE_CHECKING:
    from harness.model_checking.explore.cases import AnyCase
    from harness.models.walk.exhaustive import Explored

MOST_STATES = 10_000_000


def timed(case: AnyCase) -> tuple[Explored, float]:
    """Return the result of a walk, and the seconds of the processor that it took."""
    gc.disable()
    began_s = time.process_time()
    explored = case.walk(most_states=MOST_STATES, first_only=False)
    return explored, time.process_time() - began_s


@click.command()
@click.option("--target", type=click.Choice(list(PROPOSALS)), default=SIM_KAFKA, show_default=True)
@click.option("--with", "with_", multiple=True, help="A proposal; repeatable.")
@click.option("--groups", is_flag=True, help="Cases of consumer groups.")
@click.option("--faults", is_flag=True, help="Cases under faults.")
def main(target: str, with_: tuple[str, ...], *, groups: bool, faults: bool) -> None:
    """Time the cases of a target."""
    table, total_s, states = Table("case", "states", "transitions", "s", "states/s", box=None), 0.0, 0
    for case in cases(target, with_=with_, without=(), groups=groups, faults=faults):
        with get_context("forkserver").Pool(1) as pool:
            explored, took_s = pool.apply(timed, (case,))
        total_s, states = total_s + took_s, states + explored.states
        rate = f"{explored.states / took_s:,.0f}"
        table.add_row(case.title, f"{explored.states:,}", f"{explored.transitions:,}", f"{took_s:.2f}", rate)
    table.add_row("all", f"{states:,}", "", f"{total_s:.1f}", f"{states / total_s:,.0f}")
    console = Console(width=130)
    console.print(table)
    console.print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
