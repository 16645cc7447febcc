"""How long `harness check` of a run folder takes, with the class archive of Spark's JVM and without it.

Each round is a whole command, from its start to its exit, report included.

    python bench/check_time.py results/kafka-4.4/all/latest --rounds 5
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import click
from processors import Took, timed
from rich.console import Console
from rich.table import Table

from harness.host.java import find_java
from harness.judge import background
from harness.judge.archive import make_archive


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=3, show_default=True)
def main(run_dir: Path, rounds: int) -> None:
    """Time checks of a run folder."""
    make_archive(find_java(), wait_s=background.LIMIT_S)
    table = Table("class archive", "seconds (median)", "min - max", "processor seconds (median)")
    with tempfile.TemporaryDirectory() as empty:
        plain = {**os.environ, background.SWITCH: "0"}
        states = {"there": plain, "not there": {**plain, "COMPACTION_HARNESS_CACHE": empty}}
        measured: dict[str, list[Took]] = {state: [] for state in states}
        for _ in range(rounds):
            for state, environment in states.items():
                measured[state].append(timed([sys.executable, "-m", "harness.cli", "check", str(run_dir)], environment))
    for state, rows in measured.items():
        walls_s, processors_s = zip(*rows, strict=True)
        spread = f"{min(walls_s):.1f} - {max(walls_s):.1f}"
        table.add_row(state, f"{median(walls_s):.1f}", spread, f"{median(processors_s):.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
