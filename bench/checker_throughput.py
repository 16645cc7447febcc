"""The speed of reading segments, next to Kafka's own dump tool on the same segment in the same run.

Generates the data once (see ``segments_data``), then reads one replica's segments into Arrow round by round: all
columns, key and offset, batches alone. The tool prints one of the segments record by record, into nowhere. Each row
gives the median of the rounds; ``x tool`` is against the tool's bytes a second.

    python bench/checker_throughput.py --data /var/tmp/segments --rounds 3

One core is what a process uses: rates are by its processor time, as other work on the machine then counts for less;
wall-clock rates stand beside them.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import click
import psutil
from rich.console import Console
from rich.table import Table
from segments_data import Shape, write_replicas

from harness.broker_files.segments import arrow, batches
from harness.broker_files.segments.arrow import read_table
from harness.host.java import find_java
from harness.targets import find_target
from harness.targets.jars import jars_for

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET = "kafka-3.9"
DUMP_TOOL = "kafka.tools.DumpLogSegments"
DUMP_LIMIT_S = 600.0


class Reading(NamedTuple):
    """One way to read segments; no columns are all of them."""

    what: str
    table: arrow.Table
    columns: tuple[str, ...] | None = None


READINGS = (
    Reading("records, all columns", "records"),
    Reading("records, key and offset", "records", ("key", "offset")),
    Reading("batches", "batches"),
)


class Rate(NamedTuple):
    """The records that were read, and the time that it took."""

    size_bytes: int
    records: int
    cpu_s: float
    wall_s: float

    def mb_per_s(self, seconds: float) -> float:
        """Return 10^6 bytes a second."""
        return self.size_bytes / seconds / 1e6

    def records_per_s(self, seconds: float) -> float:
        """Return 10^6 records a second."""
        return self.records / seconds / 1e6


def read(segments: Sequence[Path], reading: Reading, records: int) -> Rate:
    """Read segments into Arrow, CRCs checked, and release each batch of rows."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    rows = 0
    for path in segments:
        with path.open("rb", buffering=0) as file:
            for batch in read_table(file, reading.table, reading.columns, source=str(path)):
                rows += batch.num_rows
    if reading.table == "records" and rows != records:
        raise SystemExit(f"{reading.what}: {rows} rows of {records} records")
    size_bytes = sum(path.stat().st_size for path in segments)
    return Rate(size_bytes, records, time.process_time() - cpu_s, time.perf_counter() - wall_s)


def dump(segment: Path, records: int, java: Path, classpath: str) -> Rate:
    """Have Kafka's tool print a segment; its JVM may use all cores."""
    wall_s, before = time.perf_counter(), psutil.Process().cpu_times()
    command = [str(java), "-cp", classpath, DUMP_TOOL, "--files", str(segment), "--print-data-log"]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=DUMP_LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{DUMP_TOOL} ended with {done.returncode}:\n{done.stderr}")
    after = psutil.Process().cpu_times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Rate(segment.stat().st_size, records, cpu_s, time.perf_counter() - wall_s)


def data_records(segment: Path) -> int:
    """Return how many records of data a segment has, by the reference."""
    found = batches.iter_batches(segment.read_bytes(), source=str(segment), verify_crc=False)
    return sum(batch.record_count for batch in found if not batch.is_control)


@click.command()
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Folder of the data; created once.")
@click.option("--records", default=Shape.records, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(data: Path, records: int, rounds: int) -> None:
    """Time the reader and the tool, round by round."""
    (replica,) = write_replicas(data / "one", Shape(records=records), ["never"])
    segments = sorted((replica / "bench-0").glob("*.log"))
    one, counts = segments[0], {path: data_records(path) for path in segments}
    java, classpath = find_java().path, jars_for(find_target(TARGET)).classpath
    for reading in READINGS:
        read(segments[:1], reading, counts[one])  # loads what is compiled, or compiles it
    tool: list[Rate] = []
    rates: dict[Reading, list[Rate]] = {reading: [] for reading in READINGS}
    for _ in range(rounds):
        tool.append(dump(one, counts[one], java, classpath))
        for reading, measured in rates.items():
            measured.append(read(segments, reading, sum(counts.values())))
    table = Table("what", "MB/s a core", "M records/s a core", "MB/s wall", "M records/s wall", "x tool, wall")
    tool_mb_per_s = median(rate.mb_per_s(rate.wall_s) for rate in tool)
    for what, measured in [(reading.what, measured) for reading, measured in rates.items()] + [("dump tool", tool)]:
        figures = [
            median(rate.mb_per_s(rate.cpu_s) for rate in measured),
            median(rate.records_per_s(rate.cpu_s) for rate in measured),
            median(rate.mb_per_s(rate.wall_s) for rate in measured),
            median(rate.records_per_s(rate.wall_s) for rate in measured),
        ]
        ratio = figures[2] / tool_mb_per_s
        table.add_row(what, *(f"{figure:.2f}" for figure in figures), f"{ratio:.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
