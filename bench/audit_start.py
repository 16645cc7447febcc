"""What an audit takes beside reading, and what the first big one of an installation takes for compiling.

Beside a small audit (less than 64 MB) stands what reading the same files takes, record by record, in one process. A big
one is timed with nothing compiled yet, and with all of it.

    python bench/audit_start.py --rounds 5
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from processors import timed
from rich.console import Console
from rich.table import Table
from segments_data import TOPIC, Shape, write_replicas

from harness.broker_files.segments.batches import Batch, iter_entries, iter_records
from harness.host.java import find_java
from harness.judge.sessions import CHECKS
from harness.spark import background
from harness.spark.background import compile_all, make_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL, BIG = Shape(records=160_000, keys=40_000), Shape(records=400_000, keys=100_000)


def reading_s(replicas: Sequence[Path]) -> float:
    """Return the seconds that the reference takes to read every record."""
    started_s = time.monotonic()
    for replica in replicas:
        for path in replica.glob(f"{TOPIC}-0/*.log"):
            for entry in iter_entries(path.read_bytes(), source=str(path)):
                if isinstance(entry, Batch):
                    for _ in iter_records(entry, source=str(path)):
                        pass
    return time.monotonic() - started_s


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    """Time audits of three replicas in three states of cleaning."""
    make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
    compile_all()
    rows: dict[str, list[tuple[float, float, float]]] = {}
    size_mb: dict[str, float] = {}
    plain = {**os.environ, background.SWITCH: "0"}
    with tempfile.TemporaryDirectory() as top:
        data = {
            what: tuple(write_replicas(Path(top) / what, shape, ("never", "half", "full")))
            for what, shape in {"small": SMALL, "big": BIG}.items()
        }
        for number in range(rounds):
            nothing_compiled = {**plain, "NUMBA_CACHE_DIR": str(Path(top) / f"numba-{number}")}
            for what, environment in (("small", plain), ("big, nothing compiled", nothing_compiled), ("big", plain)):
                replicas = data[what.partition(",")[0]]
                files = [path for replica in replicas for path in replica.rglob("*.log")]
                size_mb[what] = sum(path.stat().st_size for path in files) / 1e6
                brokers = [f"--broker={broker}={replica}" for broker, replica in enumerate(replicas, 1)]
                command = [sys.executable, "-m", "harness.cli.main", "audit", "disk", f"--topic={TOPIC}", *brokers]
                read_s = reading_s(replicas) if what == "small" else 0.0
                took = timed(command, environment)
                rows.setdefault(what, []).append((took.wall_s, took.wall_s - read_s, took.processors_s))
    table = Table("audit", "MB", "seconds (median)", "without reading (small only)", "processor seconds")
    for what, measured in rows.items():
        table.add_row(
            what, f"{size_mb[what]:.0f}", *(f"{median(column):.1f}" for column in zip(*measured, strict=True))
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
