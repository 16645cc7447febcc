"""How long a verdict takes, beside the bare floor in the same run.

The floor is what no harness can save: boot three brokers, kill one, restart it, until it is back in the ISR
of one topic. Each round times the floor, then whole ``harness run`` processes. Prints seconds and the ratio.

    python bench/time_to_verdict.py --target kafka-3.9 --target kafka-4.4 --rounds 3
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import psutil
from rich.console import Console
from rich.table import Table

from harness.admin import Admin
from harness.clock import RealClock
from harness.errors import EXIT_ANOMALY, HarnessError
from harness.java import find_java
from harness.runtimes.local import LocalRuntime, LocalSpec
from harness.store import new_run_id
from harness.targets import find_target
from harness.targets.jars import jars_for
from harness.timers import FAST
from harness.workspace import Workspace

ABSENT = 2
BOUND_S = 60.0
TOPIC = ("floor", 0)
MEMORY_PERIOD_S = 0.25


def floor_s(target_name: str) -> float:
    """Return the seconds from nothing to a killed broker back in the ISR."""
    target = find_target(target_name)
    jars = jars_for(target)
    java = find_java()
    run_id = f"floor-{new_run_id()}"
    clock = RealClock()
    with tempfile.TemporaryDirectory() as logs, Workspace(run_id, Path(logs)) as workspace:
        spec = LocalSpec(run_id, workspace.path, Path(logs), java.path, jars.classpath, FAST.broker)
        with closing(LocalRuntime(spec)) as runtime:
            admin = Admin(lambda: [runtime.address(b) for b in runtime.brokers if runtime.is_up(b)])

            def registered() -> bool:
                try:
                    return len(admin.brokers()) == len(runtime.brokers)
                except HarnessError:
                    return False

            def isr() -> tuple[int, ...]:
                state = admin.partitions([TOPIC[0]]).get(TOPIC)
                return state.isr if state else ()

            runtime.start_cluster()
            clock.wait_until(registered, BOUND_S, "brokers to register")
            admin.create_topics({TOPIC: (1, 3, 2)}, FAST.topic)
            clock.wait_until(lambda: len(isr()) == len(runtime.brokers), BOUND_S, "the topic")
            runtime.kill(ABSENT)
            clock.wait_until(lambda: ABSENT not in isr(), BOUND_S, "the broker to leave the ISR")
            runtime.start(ABSENT)
            clock.wait_until(lambda: ABSENT in isr(), BOUND_S, "the broker to rejoin the ISR")
            return clock.now_s()


class Row(NamedTuple):
    """One kind of run that is timed."""

    anomaly: str
    nemesis: str
    client: str


ROWS = (Row("stuck-lso", "kill", "librdkafka"), Row("all", "kill", "librdkafka"))
BREADTH = (
    *(Row("stuck-lso", nemesis, "librdkafka") for nemesis in ("pause", "partition", "join", "catch-up")),
    Row("stuck-lso", "kill", "java"),
)


def run_s(target: str, row: Row) -> tuple[float, float]:
    """Return a whole command's seconds and the peak memory of all its processes in GiB.

    Memory is the sum of resident sets: pages that processes share are counted by each.
    """
    with tempfile.TemporaryDirectory() as results:
        chosen = ["--target", target, "--anomaly", row.anomaly, "--nemesis", row.nemesis, "--client", row.client]
        command = ["run", *chosen, "--results", results]
        started_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        peak = _Peak(process.pid)
        said, _ = process.communicate()
        took_s = time.monotonic() - started_s
        peak_gib = peak.stop()
    if process.returncode != EXIT_ANOMALY:
        raise SystemExit(f"{target} {row} ended with {process.returncode}:\n{said}")
    return took_s, peak_gib


class _Peak:
    """Samples the memory of a process and everything that its run started, until stopped."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._stop.set()
        self._thread.join()
        return float(self._peak_bytes / 2**30)

    def _sample(self) -> None:
        while not self._stop.wait(MEMORY_PERIOD_S):
            total = 0
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self._peak_bytes = max(self._peak_bytes, total)


@click.command()
@click.option("--target", "targets", multiple=True, default=("kafka-3.9", "kafka-4.4"), show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--breadth", is_flag=True, help="The other nemeses and the other client too.")
def main(targets: tuple[str, ...], rounds: int, *, breadth: bool) -> None:
    """Time the floor and whole runs, round by round."""
    table = Table("target", *Row._fields, "seconds (median)", "min - max", "x floor", "peak GiB")
    for target in targets:
        jars_for(find_target(target))
        rows: dict[Row, list[tuple[float, float, float]]] = {row: [] for row in ROWS + (BREADTH if breadth else ())}
        floors = []
        for _ in range(rounds):
            floors.append(floor_s(target))
            for row, measured in rows.items():
                took_s, peak_gib = run_s(target, row)
                measured.append((took_s, took_s / floors[-1], peak_gib))
        spread = f"{min(floors):.1f} - {max(floors):.1f}"
        table.add_row(target, "floor", "", "", f"{median(floors):.1f}", spread, "1.00", "")
        for row, measured in rows.items():
            took, ratios, peaks = zip(*measured, strict=True)
            table.add_row(
                target, *row, f"{median(took):.1f}", f"{min(took):.1f} - {max(took):.1f}",
                f"{median(ratios):.2f}", f"{max(peaks):.2f}",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
