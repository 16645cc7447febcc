"""The duration of a verdict, next to the bare floor in the same run.

The floor is what no harness can save: boot three brokers, kill one, restart it, until it is back in the ISR
of one topic. Each round times the floor, then whole ``harness run`` processes. Prints seconds and the ratio.

    python bench/time_to_verdict.py --target kafka-3.9 --target kafka-4.4 --rounds 3

With ``--fresh``, as in a fresh clone where nobody asked the doctor to fetch anything: in a cache that is empty before
a first run, which fetches the jars and has the class archive made beside itself, and is not timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
from peak import Peak
from rich.console import Console
from rich.table import Table

from harness.cluster.boot import booted_cluster, equip
from harness.errors import EXIT_ANOMALY
from harness.host.clock import RealClock
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.schedules.timers import FAST
from harness.targets import find_target
from harness.targets.jars import jars_for

ABSENT = 2
BOUND_S = 60.0
TOPIC = ("floor", 0)


def floor_s(target_name: str) -> float:
    """Return the seconds from nothing to a killed broker back in the ISR."""
    equipment = equip(RuntimeRequest(find_target(target_name), find_java(), lambda *_: None), LOCAL)
    run_id = f"floor-{new_run_id()}"
    clock = RealClock()
    with tempfile.TemporaryDirectory() as logs, Workspace(run_id, Path(logs)) as workspace:
        spec = ClusterSpec(run_id, workspace.path, Path(logs), FAST.broker, clock=clock)
        with booted_cluster(equipment, spec, settle_s=BOUND_S) as cluster:

            def isr() -> tuple[int, ...]:
                state = cluster.admin.partitions([TOPIC[0]]).get(TOPIC)
                return state.isr if state else ()

            cluster.admin.create_topics({TOPIC: (1, 3, 2)}, FAST.topic)
            cluster.wait(lambda: len(isr()) == len(cluster.brokers), "the topic")
            cluster.runtime.kill(ABSENT)
            cluster.wait(lambda: ABSENT not in isr(), "the broker to leave the ISR")
            cluster.runtime.start(ABSENT)
            cluster.wait(lambda: ABSENT in isr(), "the broker to rejoin the ISR")
            return clock.now_s()


class Row(NamedTuple):
    """One kind of run that is timed."""

    anomaly: str
    nemesis: str
    client: str
    runtime: str = "local"


ROWS = (Row("stuck-lso", "kill", "librdkafka"), Row("all", "kill", "librdkafka"))
BREADTH = (
    *(Row("stuck-lso", nemesis, "librdkafka") for nemesis in ("pause", "partition", "join", "catch-up")),
    Row("stuck-lso", "kill", "java"),
)
CONTAINERS = (Row("stuck-lso", "kill", "librdkafka", "docker"), Row("all", "kill", "librdkafka", "docker"))


def run_s(target: str, row: Row) -> tuple[float, float]:
    """Return a whole command's seconds and the peak memory of all its processes in GiB."""
    with tempfile.TemporaryDirectory() as results:
        chosen = ["--target", target, "--anomaly", row.anomaly, "--nemesis", row.nemesis, "--client", row.client]
        command = ["run", "--runtime", row.runtime, *chosen, "--results", results]
        started_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli.main", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        peak = Peak(process.pid)
        result, _ = process.communicate()
        took_s = time.monotonic() - started_s
        peak_gib = peak.stop_gib()
    if process.returncode != EXIT_ANOMALY:
        raise SystemExit(f"{target} {row} ended with {process.returncode}:\n{result}")
    return took_s, peak_gib


@click.command()
@click.option("--target", "targets", multiple=True, default=("kafka-3.9", "kafka-4.4"), show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--breadth", is_flag=True, help="The other nemeses and the other client too.")
@click.option("--containers", is_flag=True, help="In containers too; `harness images build` makes their images.")
@click.option("--fresh", is_flag=True, help="From the second run on in a cache that was empty.")
def main(targets: tuple[str, ...], rounds: int, *, breadth: bool, containers: bool, fresh: bool) -> None:
    """Time the floor and whole runs, round by round."""
    with ExitStack() as owned:
        if fresh:
            cache = owned.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            os.environ["COMPACTION_HARNESS_CACHE"] = cache
            run_s(targets[0], ROWS[0])
        measure(targets, rounds, breadth=breadth, containers=containers)


def measure(targets: tuple[str, ...], rounds: int, *, breadth: bool, containers: bool) -> None:
    """Print what the rounds gave."""
    table = Table("target", *Row._fields, "seconds (median)", "min - max", "x floor", "peak GiB")
    timed = (*ROWS, *(BREADTH if breadth else ()), *(CONTAINERS if containers else ()))
    for target in targets:
        jars_for(find_target(target))
        rows: dict[Row, list[tuple[float, float, float]]] = {row: [] for row in timed}
        floors = []
        for _ in range(rounds):
            floors.append(floor_s(target))
            for row, measured in rows.items():
                took_s, peak_gib = run_s(target, row)
                measured.append((took_s, took_s / floors[-1], peak_gib))
        spread = f"{min(floors):.1f} - {max(floors):.1f}"
        table.add_row(target, "floor", "", "", "", f"{median(floors):.1f}", spread, "1.00", "")
        for row, measured in rows.items():
            took, ratios, peaks = zip(*measured, strict=True)
            table.add_row(
                target, *row, f"{median(took):.1f}", f"{min(took):.1f} - {max(took):.1f}",
                f"{median(ratios):.2f}", f"{max(peaks):.2f}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
