"""How fast `harness audit disk` judges big partitions, and in how much memory, beside Kafka's dump tool.

Three replicas of one partition (see ``segments_data``), byte-identical, in three states of cleaning, and diverged (one
replica missed a COMMIT). Each round
times the whole command on each of them, by the seconds that it spends checking, Spark started; then the same is judged
again and again in one session, as a second command would find the machine if Spark stayed up. The tool prints one
segment record by record, into nowhere: its records a second are what ``x tool`` is against.

    python bench/audit_throughput.py --data /var/tmp/audit --times 1 --times 4 --times 10 --workers 1 --workers 2

Records a second are of all replicas: those that lie in the files, and, in the second column, those that were written,
which cleaning has left fewer of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import click
from checker_throughput import TARGET, dump
from peak import Peak
from rich.console import Console
from rich.table import Table
from segments_data import TOPIC, Shape, State, write_replicas

from harness.audit.judge_copies import assemble, judge_copies
from harness.broker_files.copies.copies import find_copies
from harness.broker_files.segments.batches import CONTROL
from harness.broker_files.segments.blocks import iter_blocks
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.sessions import CHECKS
from harness.judge.verdict import ANOMALY, CLEAN, EXIT_CODES
from harness.run_folder.store import new_run_id
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of
from harness.targets import find_target
from harness.targets.jars import jars_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATES: Mapping[str, tuple[State, ...]] = {
    "identical": ("never", "never", "never"),
    "differing": ("never", "half", "full"),
    "diverged": ("half", "full", "missed"),
}


class Data(NamedTuple):
    """Replicas that were written: log directories, and how many records they hold and were given."""

    what: str
    times: int
    records_per_transaction: int
    replicas: tuple[Path, ...]
    size_bytes: int
    records: int
    written: int

    @property
    def name(self) -> str:
        """The states of cleaning, the size, and the records of a transaction."""
        return f"{self.what} x {self.times}, {self.records_per_transaction} a transaction"

    @property
    def verdict(self) -> str:
        """The expected verdict."""
        return ANOMALY if self.what == "diverged" else CLEAN

    @property
    def brokers(self) -> list[str]:
        """Options of the command."""
        return [f"--broker={number}={replica}" for number, replica in enumerate(self.replicas, 1)]


class Took(NamedTuple):
    """The cost of a command: its seconds, the seconds of checking, and the peak memory of all its processes."""

    command_s: float
    check_s: float
    peak_gib: float


def data_of(top: Path, what: str, times: int, size: int) -> Data:
    """Write three replicas with so many records in each transaction, or find them."""
    shape = Shape(
        records=Shape.records * times,
        keys=Shape.keys * times,
        records_per_transaction=size,
        records_per_batch=min(size, Shape.records_per_batch),
    )
    replicas = tuple(write_replicas(top / f"{what}-{times}-{size}", shape, STATES[what]))
    segments = [path for replica in replicas for path in replica.glob(f"{TOPIC}-0/*.log")]
    size_bytes = sum(path.stat().st_size for path in segments)
    return Data(what, times, size, replicas, size_bytes, sum(map(records_of, segments)), shape.records * len(replicas))


def records_of(segment: Path) -> int:
    """Return how many records of data a segment has, by its batches' headers."""
    count = 0
    with segment.open("rb", buffering=0) as file:
        for block in iter_blocks(file, source=str(segment), verify_crc=False):
            is_data = block.batches["attributes"] & CONTROL == 0
            count += int(block.batches["record_count"][is_data].sum())
    return count


def command(data: Data, workers: int = 0) -> Took:
    """Run the whole command: on this host, or on so many workers of one core each, and on no more cores than that.

    The driver has to share them; otherwise one worker, whose JVM and Python take turns on two cores, has both.
    """
    options = [f"--spark-master=local-cluster[{workers},1,2048]"] if workers else []
    pinned = ["taskset", "--cpu-list", f"0-{workers - 1}"] if workers else []
    line = [
        *pinned,
        sys.executable,
        "-m",
        "harness.cli.main",
        "audit",
        "disk",
        f"--topic={TOPIC}",
        "--format=json",
        *data.brokers,
    ]
    started_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen([*line, *options], stdout=subprocess.PIPE, stderr=file, text=True)
        peak = Peak(process.pid)
        out, _ = process.communicate()
        took_s = time.monotonic() - started_s
        peak_gib = peak.stop_gib()
        if process.returncode != EXIT_CODES[data.verdict]:
            file.seek(0)
            raise SystemExit(f"{data.name} ended with {process.returncode}:\n{out}{file.read()}")
    return Took(took_s, json.loads(out)["timings_s"]["check"], peak_gib)


def warm_s(every: Sequence[Data], rounds: int) -> dict[Data, list[float]]:
    """Judge all data in one session, round by round, after a first round that does not count."""
    took: dict[Data, list[float]] = {data: [] for data in every}
    with ExitStack() as owned:
        workspace = owned.enter_context(Workspace(f"bench-{new_run_id()}", Path.cwd()))
        session = owned.enter_context(session_of(workspace, find_java(), SparkOptions(), [], CHECKS))
        for number in range(rounds + 1):
            for data, seconds in took.items():
                brokers = {broker: [folder.absolute()] for broker, folder in enumerate(data.replicas, 1)}
                started_s = time.monotonic()
                copies = find_copies(brokers, [TOPIC], "bench")
                verdict = assemble(copies, judge_copies(session, [copies]), timings_s={}).verdict
                if verdict != data.verdict:
                    raise SystemExit(f"{data.name} is {verdict}")
                if number:
                    seconds.append(time.monotonic() - started_s)
    return took


def dump_records_s(segment: Path) -> float:
    """Return how many records a second the dump tool prints."""
    records = records_of(segment)
    rate = dump(segment, records, find_java().path, jars_for(find_target(TARGET)).classpath)
    return records / rate.wall_s


@click.command()
@click.option("--data", "top", required=True, type=click.Path(path_type=Path), help="Folder of the data; created once.")
@click.option("--times", multiple=True, default=(1,), show_default=True, help="Multiples of 4 M records a replica.")
@click.option(
    "--transaction", "sizes", multiple=True, default=(10, 5_000), show_default=True, help="Records of a transaction."
)
@click.option("--workers", multiple=True, type=int, help="Also on a local cluster of so many workers, and cores.")
@click.option("--rounds", default=3, show_default=True)
def main(top: Path, times: tuple[int, ...], sizes: tuple[int, ...], workers: tuple[int, ...], rounds: int) -> None:
    """Time whole audits."""
    every = [data_of(top, what, factor, size) for factor in times for size in sizes for what in STATES]
    rows: dict[tuple[Data, int], list[Took]] = {(data, count): [] for data in every for count in (0, *workers)}
    tool = []
    for _ in range(rounds):
        tool.append(dump_records_s(next(every[0].replicas[0].glob(f"{TOPIC}-0/*.log"))))
        for (data, count), measured in rows.items():
            measured.append(command(data, count))
    warm = warm_s(every, rounds)
    table = Table("data", "Spark", "GB", "command s", "check s", "M records/s", "M written/s", "x tool", "peak GiB")
    for (data, count), measured in rows.items():
        check_s = median(took.check_s for took in measured)
        spark = f"{count} workers and cores" if count else f"local, {os.cpu_count()} cores"
        line(table, data, spark, check_s, median(tool), measured)
        if not count:
            line(table, data, "the same, warm", median(warm[data]), median(tool))
    Console(width=130).print(table)
    Console().print(f"dump tool: {median(tool) / 1e6:.2f} M records/s")


def line(table: Table, data: Data, spark: str, check_s: float, tool: float, measured: Sequence[Took] = ()) -> None:  # noqa: PLR0917
    """Add a row."""
    table.add_row(
        data.name,
        spark,
        f"{data.size_bytes / 1e9:.2f}",
        f"{median(took.command_s for took in measured):.1f}" if measured else "",
        f"{check_s:.2f}",
        f"{data.records / check_s / 1e6:.1f}",
        f"{data.written / check_s / 1e6:.1f}",
        f"{data.records / check_s / tool:.0f}",
        f"{max(took.peak_gib for took in measured):.2f}" if measured else "",
    )


if __name__ == "__main__":
    main()
