"""Work through a plan: one run after the other, each a process of its own, until all is said or the time is used up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psutil

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE
from harness.judge.verdict import finding_line
from harness.nightly.ledger import Attempt, Said
from harness.run_folder.store import COMPLETE, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.nightly.ledger import Ledger
    from harness.nightly.matrix import Matrix, Outage

ATTEMPTS = 2
"""A run that fails as such is tried once more."""
_JUDGED = (EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN)
_END_TIMEOUT_S = 60.0
_TOLD_LINES = 3


RunOne: TypeAlias = "Callable[[int, int, float | None], Attempt]"
"""Runs the outage of an index, for the so-manieth time, within so many seconds."""


class Teller(Protocol):
    """Where a night tells what it is doing."""

    def begin(self, index: int, number: int, outage: Outage) -> None:
        """A run begins, the ``number``-th for this outage."""
        ...

    def end(self, attempt: Attempt) -> None:
        """It has ended."""
        ...


def work(
    ledger: Ledger, run_one: RunOne, teller: Teller, *, budget_s: float | None = None, now_s: Callable[[], float]
) -> None:
    """Have every outage run that has no attempt that went to its end, and no second one.

    ``budget_s``: no run is begun that may not end in time, by the longest so far; one that takes longer all the same is
    ended. ``now_s``: seconds, as `time.monotonic` has them.
    """
    ends_s = None if budget_s is None else now_s() + budget_s
    had = ledger.attempts()
    for index, outage in enumerate(ledger.plan.matrix.outages):
        mine = [attempt for attempt in had if attempt.outage == index]
        while len(mine) < ATTEMPTS and not any(attempt.failure is None or is_refused(attempt) for attempt in mine):
            left_s = None if ends_s is None else ends_s - now_s()
            if left_s is not None and left_s <= max((attempt.took_s for attempt in had), default=0.0):
                return
            teller.begin(index, len(mine) + 1, outage)
            attempt = run_one(index, len(mine) + 1, left_s)
            ledger.end(attempt)
            teller.end(attempt)
            mine.append(attempt)
            had.append(attempt)


def command_of(outage: Outage, matrix: Matrix, results: Path, time_limit_s: float | None) -> list[str]:
    """Return the arguments of ``harness`` that run an outage."""
    limit = [] if time_limit_s is None else ["--time-limit", f"{time_limit_s:.0f}"]
    return [
        "run", "--target", outage.target, "--anomaly", outage.anomalies, "--client", outage.client,
        "--nemesis", outage.nemesis, "--runtime", outage.runtime, "--timers", matrix.timers,
        *(part for setting in matrix.settings for part in ("--set", setting)), *limit, "--results", str(results),
    ]  # fmt: skip


def run_process(ledger: Ledger, results: Path, index: int, number: int, time_limit_s: float | None) -> Attempt:
    """Run an outage by ``harness run``, in a process of its own, and return what came of it.

    What the process tells goes to the ledger's folder; it is ended where this is interrupted.
    """
    outage = ledger.plan.matrix.outages[index]
    command = command_of(outage, ledger.plan.matrix, results, time_limit_s)
    started_s = time.monotonic()
    with (
        ledger.log_path(index, number).open("w+") as log,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.cli", *command, "--format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            ledger.begin(index, number, psutil.Process(process.pid))
            stdout, _ = process.communicate()
        except BaseException:
            process.terminate()
            process.wait(_END_TIMEOUT_S)
            raise
        log.seek(0)
        words = log.read().splitlines()[-_TOLD_LINES:]
    took_s = round(time.monotonic() - started_s, 1)
    code = process.returncode
    if code not in _JUDGED or not stdout:
        told = "; ".join(line.removeprefix("harness: ") for line in words if line.startswith("harness: "))
        return Attempt(index, number, code, took_s, told or "; ".join(words) or f"it ended with exit code {code}")
    ended = Attempt(index, number, code, took_s, failure=None)
    return with_said(ended, json.loads(stdout), outage, results)


def with_said(ended: Attempt, said: dict[str, Any], outage: Outage, results: Path) -> Attempt:
    """Return an attempt with what its ``verdict.json`` and its manifest tell of the outage's scenarios."""
    run_dir = results / outage.target / outage.anomalies / said["run_id"]
    manifest = json.loads((run_dir / MANIFEST).read_text())
    return replace(
        ended,
        failure=None if manifest["status"] == COMPLETE else manifest["failure"] or manifest["status"],
        run_dir=str(run_dir.relative_to(results)),
        version=said["target"]["version"],
        said=tuple(_said(one, said["findings"]) for one in said["scenarios"]),
        strays=tuple(finding_line(one) for one in said["findings"] if one["topic"] not in outage.scenarios),
    )


def is_refused(attempt: Attempt) -> bool:
    """Whether the run was found wrong before its first broker started: an image or a right is missing, say."""
    return attempt.exit_code == EXIT_USAGE


def _said(scenario: dict[str, Any], findings: Sequence[dict[str, Any]]) -> Said:
    mine = [finding for finding in findings if finding["topic"] == scenario["scenario"]]
    names = dict.fromkeys(name for one in mine for name in (one["anomaly"], *one["candidates"]))
    return Said(
        scenario["scenario"], scenario["verdict"], scenario["reason"], tuple(names),
        finding_line(mine[0]) if mine else "",
    )  # fmt: skip
