"""Is it dependable? The same run again and again: every payload found every time, every control clean.

    python bench/dependable.py --runs 20 --target kafka-3.9 --target kafka-4.4 --results DIR

Runs ``harness run --anomaly all`` with faults (each of the five payloads must be found, under its own name,
on the absent broker, and nothing else) and with ``--nemesis none`` (must be clean). Prints a table of counts,
and every run that was not as it should be. Exits 1 if there was one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from harness.catalog import SCENARIOS
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN

HEALTHY = "none"


class Cell(NamedTuple):
    """One combination."""

    target: str
    client: str
    nemesis: str


def one_run(cell: Cell, results: Path) -> tuple[int, dict[str, Any], float, str]:
    """Return exit code, verdict, seconds and what went to stderr."""
    started_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "run", "--target", cell.target, "--client", cell.client,
         "--nemesis", cell.nemesis, "--anomaly", "all", "--results", str(results), "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    verdict = json.loads(done.stdout) if done.stdout else {}
    return done.returncode, verdict, time.monotonic() - started_s, done.stderr


def payloads_found(verdict: dict[str, Any]) -> set[str]:
    """Return the scenarios whose topic has a finding under the scenario's own name."""
    anomaly_of = {s.name: str(s.anomaly) for s in SCENARIOS}
    return {
        finding["topic"]
        for finding in verdict.get("findings", ())
        if finding["anomaly"] == anomaly_of.get(finding["topic"]) and not finding["candidates"]
    }


@click.command()
@click.option("--runs", default=20, show_default=True)
@click.option("--target", "targets", multiple=True, default=("kafka-3.9", "kafka-4.4"), show_default=True)
@click.option("--client", "clients", multiple=True, default=("librdkafka",), show_default=True)
@click.option("--nemesis", "nemeses", multiple=True, default=("kill", HEALTHY), show_default=True)
@click.option("--results", type=click.Path(path_type=Path), required=True)
def main(
    runs: int, targets: tuple[str, ...], clients: tuple[str, ...], nemeses: tuple[str, ...], results: Path
) -> None:
    """Run every combination ``runs`` times, in turn."""
    counts: dict[Cell, Counter[str]] = {Cell(*cell): Counter() for cell in product(targets, clients, nemeses)}
    seconds: dict[Cell, list[float]] = {cell: [] for cell in counts}
    bad = 0
    for number in range(1, runs + 1):
        for cell, count in counts.items():
            code, verdict, took_s, stderr = one_run(cell, results)
            found = payloads_found(verdict)
            extra = len(verdict.get("findings", ())) - len(found)
            count["runs"] += 1
            count[verdict.get("verdict", f"exit {code}")] += 1
            count.update(found)
            seconds[cell].append(took_s)
            wanted = set() if cell.nemesis == HEALTHY else {s.name for s in SCENARIOS}
            as_it_should = code == (EXIT_ANOMALY if wanted else EXIT_CLEAN) and found == wanted and not extra
            said = verdict.get("verdict", code)
            print(f"{number:3} {' '.join(cell)}: {said}, {len(found)} payloads, {took_s:.1f} s", flush=True)
            if not as_it_should:
                bad += 1
                print(
                    f"    NOT AS IT SHOULD BE: {verdict.get('run_id')} {verdict.get('reason')} {stderr[-1500:]}",
                    flush=True,
                )
    _print(counts, seconds)
    sys.exit(1 if bad else 0)


def _print(counts: dict[Cell, Counter[str]], seconds: dict[Cell, list[float]]) -> None:
    names = [s.name for s in SCENARIOS]
    table = Table(*Cell._fields, "runs", "anomaly", "clean", "unknown", *names, "median s")
    for cell, count in counts.items():
        cells = [str(count[name]) for name in ("runs", "anomaly", "clean", "unknown", *names)]
        table.add_row(*cell, *cells, f"{median(seconds[cell]):.1f}")
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
