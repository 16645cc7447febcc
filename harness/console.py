"""Output of a run: progress to stderr, results to stdout."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from harness.json_codec import to_json
from harness.judge import guarantees
from harness.judge.finding import Finding
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, EXIT_CODES, UNKNOWN, RunResult, Verdict
from harness.run_folder.store import LOGIN, login_file
from harness.terminal import Table, Terminal, stderr, stdout, styled

if TYPE_CHECKING:
    from harness.report.audits import Paragraph

TEXT, JSON = "text", "json"
QUIET = "harness.quiet"
VERBOSE = "harness.verbose"
"""The keys of ``--quiet`` and ``--verbose`` in the meta data of Click's context."""
MB = 1_000_000
WIDTH = 12
"""The column in which sentences begin."""
STYLES = {ANOMALY: "bold red", UNKNOWN: "bold yellow", AS_EXPECTED: "green", CLEAN: "bold green"}


def _has(option: str) -> bool:
    return (context := click.get_current_context(silent=True)) is not None and option in context.meta


def is_verbose() -> bool:
    """Return whether the command was given ``--verbose``."""
    return _has(VERBOSE)


def print_progress(text: str) -> None:
    """Print a line of progress to stderr; nothing with ``--quiet``."""
    if not _has(QUIET):
        stderr().line(text)


class ConsoleProgress:
    """Stages as lines on stderr, with the seconds since the start; bars on a terminal only."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        """Start the clock. Nothing is printed if it ``is_quiet``, or with ``--quiet``."""
        self._terminal = stderr()
        self._started_s = time.monotonic()
        self._bar: Bar | None = None
        self._fetches = False
        self._is_quiet = is_quiet or _has(QUIET)
        self._shows_bars = not self._is_quiet and self._terminal.console.is_terminal

    def stage(self, text: str) -> None:
        """Print the stage's line."""
        self.close()
        if self._is_quiet:
            return
        self._terminal.line(styled(f"{time.monotonic() - self._started_s:6.1f} s", "dim"), f"  {text}")

    def jars(self, done: int, total: int) -> None:
        """Update the bar of fetching jars; without a terminal, print one line when they are fetched."""
        if not self._shows_bars:
            # Steps may be reported again when all are done: they begin nothing.
            if done < total and not self._fetches:
                self.stage("fetch jars")
            self._fetches = done < total
            return
        fraction = done / max(total, 1)
        self._update("fetch jars", fraction, f"{fraction:4.0%}")
        if done >= total:
            self.close()

    def reading(self, fraction: float, done_bytes: int) -> None:
        """Update the bar of reading from a cluster; it shows MB, the mean rate since the start, and the rest."""
        done_mb, elapsed_s = done_bytes / MB, self._bar.tasks[0].elapsed if self._bar else None
        rate_mb_s = done_mb / elapsed_s if elapsed_s else 0.0
        self._update("read", fraction, f"{fraction:4.0%}  {done_mb:,.1f} MB  {rate_mb_s:,.1f} MB/s")

    def tasks(self, step: str, ended: int, count: int) -> None:
        """Update the bar of a step's tasks in Spark."""
        self._update(step, ended / count, f"{ended} of {count} tasks")

    def close(self) -> None:
        """End a bar that is still shown."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _update(self, step: str, completed: float, amount: str) -> None:
        """Update the bar of a step, which begins with its first update, on a terminal."""
        if not self._shows_bars:
            return
        if self._bar is None or self._bar.tasks[0].description != step:
            self.close()
            remaining = TimeRemainingColumn(elapsed_when_finished=True)
            columns = TextColumn(step), BarColumn(), TextColumn("{task.fields[amount]}"), remaining
            self._bar = Bar(*columns, console=self._terminal.console)
            self._bar.add_task(step, total=1.0, amount="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=completed, amount=amount)


def show(result: RunResult, output: str) -> None:
    """Print a run's result to stdout, as text or as JSON."""
    verdict, out, err = result.verdict, stdout(), stderr()
    if output == JSON:
        out.json(to_json(verdict))
    else:
        _show_scenarios(out, verdict)
        if verdict.guarantees:
            out.line(guarantees.summary_line(verdict.guarantees))
        for view in verdict.applications or ():
            # Views that differ are printed with their finding.
            if not view.differs:
                out.line(f"no consequence: {view.summary}")
        for missing in verdict.partial or ():
            out.line(f"not judged: {missing.path} {missing.problem}")
        for note in verdict.notes or ():
            out.line(f"note: {note}")
        path, here = result.folder.path, Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        out.line(f"{shown}/   (exit code {EXIT_CODES[verdict.verdict]})")
    for broker, address in result.addresses.items():
        err.line(f"kept: broker {broker} at {address}")
    if result.addresses:
        file, servers = login_file(verdict.command or ""), ",".join(result.addresses.values())
        words = ["--bootstrap-server", servers, "--topic", "*", *([LOGIN, file] if file else [])]
        err.line(f"audit it with: {shlex.join(['harness', 'audit', 'live', *words])}")
        err.line(f"remove it with: harness clean {result.folder.run_id}")


def _show_scenarios(out: Terminal, verdict: Verdict) -> None:
    """Print a table of a run's scenarios, and a paragraph for each kind of finding; of one scenario its findings."""
    is_single = len(verdict.scenarios) < 2  # noqa: PLR2004
    if is_single or is_verbose():
        show_findings(out, verdict)
    if is_single:
        return
    from harness.report.audits import run_paragraphs  # noqa: PLC0415  (slow imports, only where needed)

    rows = []
    for scenario in verdict.scenarios:
        mine = [finding for finding in verdict.findings if scenario.has(finding.place)]
        brokers = ", ".join(map(str, sorted({finding.broker for finding in mine if finding.decided})))
        effects = ", ".join(sorted({finding.effect for finding in mine}, reverse=True))
        rows.append((scenario.scenario, verdict_word(scenario.verdict), len(mine), brokers, effects))
    out.table(Table(("scenario", "verdict", "findings", "broker", "effect"), rows))
    show_paragraphs(out, run_paragraphs(verdict))


def show_paragraphs(out: Terminal, paragraphs: Iterable[Paragraph]) -> None:
    """Print titles with their verdicts, and the sentences of each."""
    for paragraph in paragraphs:
        out.fields([(verdict_word(paragraph.verdict), paragraph.title)], width=WIDTH)
        out.fields([(f"  {name}", sentence) for name, sentence in paragraph.rows], width=WIDTH)


def show_findings(out: Terminal, verdict: Verdict) -> None:
    """Print a line for each scenario without a finding, and for each finding with its evidence and advice."""
    for scenario in verdict.scenarios:
        if scenario.verdict != ANOMALY:
            out.line(verdict_word(scenario.verdict), f" {scenario.scenario}: {scenario.reason}")
    advised: set[tuple[object, ...]] = set()
    for finding in verdict.findings:
        out.line(verdict_word(ANOMALY), f" {finding}")
        for line in _evidence_lines(finding):
            out.line(f"  {line}")
        advice = (finding.place, finding.means, finding.do)
        if finding.means is not None and advice not in advised:
            advised.add(advice)
            out.line(f"  what it means: {finding.means}")
            out.line(f"  what to do: {finding.do}")
            for command in finding.commands or ():
                out.line(f"    {command}")


def _evidence_lines(finding: Finding) -> Iterator[str]:
    """Yield the evidence for a finding, the assumptions, and what readers get of a record of an internal topic."""
    record = finding.record
    lines = (
        ("consequence", finding.consequence),
        ("for consumers", record and record.consumers),
        ("now", record and record.coordinator and record.coordinator.text),
        ("commit", record and record.commit),
        ("note", record and record.note),
        ("cause", finding.cause),
        ("decided by", "; ".join(finding.decided_by or ())),
        *(("assumed", assumption) for assumption in finding.assumptions or ()),
    )
    yield from (f"{name}: {text}" for name, text in lines if text)


def verdict_word(verdict: str) -> Any:
    """Return a verdict in capitals and in its colour."""
    return styled(verdict.upper(), STYLES[verdict])
