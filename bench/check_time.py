"""The duration of `harness check` of a run folder, next to a PySpark program that starts and counts ten rows.

Each round runs three whole commands in turn: that program, with PySpark's own settings, and the check, from its start
to its exit, report included, with the class archive of Spark's JVM and without it. Seconds hold for one machine at one
hour; the ratio of a round holds on others.

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
from harness.judge.sessions import CHECKS
from harness.spark import background
from harness.spark.background import make_archive

PLAIN = "PySpark, ten rows counted"
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
assert spark.range(10).groupBy().count().first()[0] == 10
spark.stop()
"""


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=3, show_default=True)
def main(run_dir: Path, rounds: int) -> None:
    """Time checks of a run folder."""
    make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
    with tempfile.TemporaryDirectory() as empty:
        here = {**os.environ, background.SWITCH: "0"}
        check = [sys.executable, "-m", "harness.cli.main", "check", str(run_dir)]
        commands = {
            PLAIN: ([sys.executable, "-c", PROGRAM], here),
            "check, class archive there": (check, here),
            "check, no class archive": (check, {**here, "COMPACTION_HARNESS_CACHE": empty}),
        }
        measured: dict[str, list[Took]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, (command, environment) in commands.items():
                measured[name].append(timed(command, environment))
    Console(width=130).print(_table(measured))


def _table(measured: dict[str, list[Took]]) -> Table:
    table = Table("command", "seconds (median)", "min - max", "of PySpark's (median)", "processor seconds (median)")
    for name, rows in measured.items():
        walls_s, processors_s = zip(*rows, strict=True)
        ratio = median(row.wall_s / plain.wall_s for row, plain in zip(rows, measured[PLAIN], strict=True))
        spread = f"{min(walls_s):.1f} - {max(walls_s):.1f}"
        table.add_row(name, f"{median(walls_s):.1f}", spread, f"{ratio:.2f}", f"{median(processors_s):.1f}")
    return table


if __name__ == "__main__":
    main()
