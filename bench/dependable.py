"""Is it dependable? The same run again and again: every payload found every time, every control clean.

    python bench/dependable.py --runs 20 --target kafka-3.9 --target kafka-4.4 --log runs.jsonl --results DIR

Runs ``harness run`` with faults (each payload must be found, under its own name, on the absent broker, and nothing
else) and with ``--nemesis none`` (must be clean), until each combination has so many runs in the log. The log has one
line a run, so that the bench can be ended and gone on with; run folders of runs that are as they should be are deleted.
Prints a table of all that is in the log. Exits 1 if a run was not as it should be.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.schedules.catalog import ALL, all_scenarios, scenarios_for
from harness.schedules.timers import FAST
from harness.targets import find_target

HEALTHY = "none"
FAULTS = ("kill", "pause", "partition", "join", "catch-up")
PAYLOADS = {s.name: str(s.anomaly) for s in all_scenarios()}
UNNOTICED = "group-committed-to-aborted"
"""The one scenario of groups from which no consumer is seen to suffer."""
ABSENT = 2


class Cell(NamedTuple):
    """One combination."""

    target: str
    client: str
    nemesis: str


def one_run(cell: Cell, anomaly: str, timers: str, results: Path) -> dict[str, Any]:
    """Run once; return the log's line: cell, commit, verdict, payloads with findings, other findings, seconds."""
    started_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "run", "--target", cell.target, "--client", cell.client,
         "--runtime", "local", "--nemesis", cell.nemesis, "--anomaly", anomaly, "--timers", timers,
         "--results", str(results),
         "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    took_s = time.monotonic() - started_s
    actual = json.loads(done.stdout) if done.stdout else {}
    findings = actual.get("findings", [])
    found = sorted({name for f in findings if (name := planted(f, actual["scenarios"]))})
    suffered = sorted({name for f in findings if "consequence" in f and (name := planted(f, actual["scenarios"]))})
    scenarios = () if cell.nemesis == HEALTHY else scenarios_for(anomaly, find_target(cell.target).group_protocols)
    wanted = sorted(scenario.name for scenario in scenarios)
    to_suffer = sorted(s.name for s in scenarios if s.kind.is_of_groups and s.name != UNNOTICED)
    code = EXIT_ANOMALY if wanted else EXIT_CLEAN
    ok = done.returncode == code and found == wanted and len(findings) == len(wanted)
    ok &= suffered == to_suffer
    return {
        **cell._asdict(),
        "commit": commit(),
        "run_id": actual.get("run_id"),
        "verdict": actual.get("verdict", f"exit code {done.returncode}"),
        "found": found,
        "suffered": suffered,
        "others": sum(planted(finding, actual["scenarios"]) is None for finding in findings),
        "ok": ok,
        "reason": None if ok else actual.get("reason", done.stderr[-1500:]),
        "took_s": round(took_s, 1),
    }


def planted(finding: dict[str, Any], scenarios: list[dict[str, Any]]) -> str | None:
    """Return the scenario whose partition has this finding, if the finding is what the scenario looks for."""
    place = finding["topic"], finding["partition"]
    (name,) = [one["scenario"] for one in scenarios if place[0] == one["topic"] and place[1] in one["partitions"]]
    is_named = finding["anomaly"] == PAYLOADS[name] and not finding["candidates"]
    return name if is_named and finding["broker"] == ABSENT else None


def commit() -> str:
    """Return the checkout's commit, with a mark where it was changed since."""
    root = Path(__file__).resolve().parent
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def read(log: Path) -> dict[Cell, list[dict[str, Any]]]:
    """Return the log's lines by cell."""
    runs: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else ():
        run = json.loads(line)
        runs[Cell(*(run[name] for name in Cell._fields))].append(run)
    return runs


@click.command()
@click.option("--runs", type=click.IntRange(min=0), default=20, show_default=True)
@click.option("--target", "targets", multiple=True, default=("kafka-3.9", "kafka-4.4"), show_default=True)
@click.option("--client", "clients", multiple=True, default=("librdkafka", "java"), show_default=True)
@click.option("--nemesis", "nemeses", multiple=True, default=(*FAULTS, HEALTHY), show_default=True)
@click.option("--anomaly", default=ALL, show_default=True, help="The same for all runs of a log.")
@click.option("--timers", default=FAST.name, show_default=True, help="The same for all runs of a log.")
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--log", type=click.Path(path_type=Path), required=True, help="The log; an existing one is continued.")
def main(runs: int, anomaly: str, timers: str, results: Path, log: Path, **chosen: tuple[str, ...]) -> None:
    """Run every combination in turn until the log has ``runs`` of it."""
    cells = [Cell(*cell) for cell in product(chosen["targets"], chosen["clients"], chosen["nemeses"])]
    had = read(log)
    for number in range(runs):
        for cell in cells:
            if len(had[cell]) > number:
                continue
            run = one_run(cell, anomaly, timers, results)
            had[cell].append(run)
            with log.open("a") as file:
                file.write(json.dumps(run) + "\n")
            actual = "" if run["ok"] else f"  NOT AS IT SHOULD BE: {run['run_id']} {run['reason']}"
            message = f"{run['verdict']}, {len(run['found'])} payloads, {run['took_s']} s"
            print(f"{number + 1:3} {' '.join(cell)}: {message}{actual}", flush=True)
            if run["ok"]:
                shutil.rmtree(results / cell.target / anomaly / run["run_id"])
    _print(had)
    sys.exit(0 if all(run["ok"] for of_cell in had.values() for run in of_cell) else 1)


def _print(had: dict[Cell, list[dict[str, Any]]]) -> None:
    names = [s.name for s in all_scenarios()]
    table = Table(*Cell._fields, "runs", "ok", "anomaly", "clean", "unknown", *names, "median s", "commits")
    for cell, of_cell in had.items():
        actual = [sum(run["verdict"] == word for run in of_cell) for word in ("anomaly", "clean", "unknown")]
        payloads = [sum(name in run["found"] for run in of_cell) for name in names]
        ok = sum(run["ok"] for run in of_cell)
        seconds = median(run["took_s"] for run in of_cell)
        commits = " ".join(sorted({run["commit"] for run in of_cell}))
        table.add_row(*cell, *map(str, (len(of_cell), ok, *actual, *payloads)), f"{seconds:.1f}", commits)
    Console(width=240).print(table)


if __name__ == "__main__":
    main()
