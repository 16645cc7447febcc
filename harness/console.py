"""What goes to the terminal: progress and bars to stderr, results to stdout."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from harness import guarantees
from harness.verdict import ANOMALY, CLEAN, EXIT_CODES, UNKNOWN, finding_line

if TYPE_CHECKING:
    from harness.outcome import RunResult

TEXT, JSON = "text", "json"
MB = 1_000_000
STYLES = {ANOMALY: "bold red", CLEAN: "bold green", UNKNOWN: "bold yellow"}


class ConsoleProgress:
    """Stages as lines on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        """Start counting."""
        self._console = Console(stderr=True, highlight=False)
        self._started_s = time.monotonic()
        self._bar: Bar | None = None

    def stage(self, text: str) -> None:
        """Print the stage's line."""
        self.close()
        self._console.print(f"[dim]{time.monotonic() - self._started_s:6.1f} s[/dim]  {text}", soft_wrap=True)

    def jars(self, done: int, total: int) -> None:
        """Move the bar of fetching jars."""
        if self._bar is None:
            self._bar = Bar(
                TextColumn("fetch jars"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(),
                console=self._console,
            )  # fmt: skip
            self._bar.start()
            self._bar.add_task("jars", total=total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        if done >= total:
            self.close()

    def reading(self, fraction: float, done_bytes: int) -> None:
        """Move the bar of reading from a cluster; it shows MB, the mean rate since it began, and what is left."""
        if self._bar is None:
            self._bar = Bar(
                TextColumn("read"), BarColumn(), TextColumn("{task.percentage:>3.0f}%  {task.fields[told]}"),
                TimeRemainingColumn(elapsed_when_finished=True), console=self._console,
            )  # fmt: skip
            self._bar.start()
            self._bar.add_task("read", total=1.0, told="")
        task = self._bar.tasks[0]
        done_mb = done_bytes / MB
        rate_mb_s = done_mb / task.elapsed if task.elapsed else 0.0
        self._bar.update(task.id, completed=fraction, told=f"{done_mb:,.1f} MB  {rate_mb_s:,.1f} MB/s")

    def close(self) -> None:
        """End a bar that is still shown."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def show(result: RunResult, output: str) -> None:
    """Print a run's result to stdout, as text or as JSON."""
    said = result.verdict
    code = EXIT_CODES[said["verdict"]]
    if output == JSON:
        click.echo(json.dumps(said, indent=2))
    else:
        console = stdout()
        show_findings(console, said)
        if said["guarantees"]:
            console.print(guarantees.line(said["guarantees"]), markup=False)
        _show_aftermath(console, said["aftermath"])
        console.print(f"{_relative(result.folder.path)}/   (exit code {code})", markup=False)
    for broker, address in result.kept.items():
        click.echo(f"kept: broker {broker} at {address}", err=True)
    if result.kept:
        click.echo(f"remove it with: harness clean {result.folder.run_id}", err=True)


def show_findings(console: Console, said: dict[str, Any]) -> None:
    """Print a line for each scenario without a finding, and for each finding."""
    for scenario in said["scenarios"]:
        if scenario["verdict"] != ANOMALY:
            _line(console, scenario["verdict"], f"{scenario['scenario']}: {scenario['reason']}")
    for finding in said["findings"]:
        _line(console, ANOMALY, finding_line(finding))


def _show_aftermath(console: Console, steps: list[dict[str, Any]]) -> None:
    freed: set[tuple[str, int, int]] = set()
    for step in steps:
        told = [f"stuck: {', '.join(map(_stands, step['stuck']))}"] if step["stuck"] else []
        for replica in step["ended"]:
            name = (replica["topic"], replica["partition"], replica["broker"])
            told += [] if name in freed else [f"free: {_stands(replica)}, taken as {replica['outcome']}"]
            freed.add(name)
        console.print(f"{step['after_s']:6.1f} s  {step['summary']}", markup=False)
        for line in told or ["nothing is stuck"]:
            console.print(f"          {line}", markup=False)


def _stands(replica: dict[str, Any]) -> str:
    where = f"{replica['topic']}-{replica['partition']} on broker {replica['broker']}"
    return f"{where} at {replica['last_stable_offset']} of {replica['high_watermark']}"


def _line(console: Console, verdict: str, text: str) -> None:
    console.print(f"[{STYLES[verdict]}]{verdict.upper()}[/]", end=" ")
    console.print(text, markup=False)


def stdout() -> Console:
    """Return where results go."""
    return Console(highlight=False, soft_wrap=True)


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
