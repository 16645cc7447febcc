"""The folder of a night: its plan, and a line for each run that began or ended, so that the night can be resumed.

``plan.json`` has the matrix, the expected verdicts, commit and owner; ``attempts.jsonl`` a line for each run that began
(outage, number, pid, started_s) or ended (`Attempt`); ``outages/`` the output of each run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from harness.errors import UsageError, raised_as
from harness.host.leftovers import Owner, owner_of_this_process, process_fields
from harness.json_codec import from_json, to_json
from harness.nightly.latest import newest_patches
from harness.nightly.matrix import Cell, Expectation, Matrix, expected, read_expectations, read_matrix
from harness.play.begin import commit_of_checkout
from harness.run_folder.history import read_lines
from harness.run_folder.store import RunFolder, new_run_id

NIGHTLY = "nightly"
"""The folder of all nights among the results."""
PLAN, ATTEMPTS = "plan.json", "attempts.jsonl"
SCHEMA = 2
_BEGAN, _ENDED = "began", "ended"
_END_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario's verdict and ``anomalies`` in a run. ``witness``: the first finding as one line, or ""."""

    scenario: str
    verdict: str
    reason: str
    anomalies: tuple[str, ...] = ()
    witness: str = ""


@dataclass(frozen=True)
class Attempt:
    """A run that ended: the ``number``-th for the outage of that index.

    ``failure``: why it failed, None where it completed; a failed run may have results all the same.
    ``run_dir`` is relative to the results. ``strays``: findings in topics that no scenario has, as lines.
    """

    outage: int
    number: int
    exit_code: int
    took_s: float
    failure: str | None
    run_dir: str | None = None
    version: str | None = None
    scenario_results: tuple[ScenarioResult, ...] = ()
    strays: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The plan of a night. ``details``: further fields of ``plan.json``: commit, time of creation."""

    matrix: Matrix
    expected: Mapping[Cell, Expectation]
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Ledger:
    """The folder of a night, for the process that works on it: from `create` or `reopen`."""

    path: Path
    plan: Plan

    @classmethod
    def create(cls, path: Path, plan: Plan) -> Ledger:
        """Write the plan. Raises `UsageError` where it cannot be written."""
        ledger = cls(path, plan)
        with raised_as(UsageError, f"{path} cannot be written", OSError):
            (path / "outages").mkdir(parents=True)
            ledger._write_plan()
        return ledger

    @classmethod
    def reopen(cls, path: Path) -> Ledger:
        """Take over an interrupted night, and end the run that was in progress.

        Raises `UsageError` for another folder, for a damaged plan, and where a process still works on the night.
        """
        try:
            content = json.loads((path / PLAN).read_text())
            if content["schema"] != SCHEMA:
                raise UsageError(f"{path / PLAN} has schema {content['schema']}, not {SCHEMA}: begin another night")
            expected = {Cell(*cell): Expectation({}, verdict, why) for *cell, verdict, why in content["expected"]}
            plan = Plan(from_json(Matrix, content["matrix"]), expected, content["details"])
            owner = from_json(Owner, content["owner"])
        except FileNotFoundError:
            raise UsageError(f"{path} is not the folder of a night, as results/nightly/…: it has no {PLAN}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path / PLAN} is damaged: {error}") from error
        if owner.lives():
            raise UsageError(f"{path} is still in progress (process {owner.pid}); end that first")
        ledger = cls(path, plan)
        ledger._end_last_run()
        ledger._write_plan()
        return ledger

    def attempts(self) -> list[Attempt]:
        """Return all runs that ended."""
        return [from_json(Attempt, line) for line in self._lines(_ENDED)]

    def begin(self, outage: int, number: int, process: psutil.Process) -> None:
        """Record that a run began."""
        self._append(_BEGAN, outage=outage, number=number, **process_fields(process))

    def end(self, attempt: Attempt) -> None:
        """Record that a run ended."""
        self._append(_ENDED, **to_json(attempt))

    def log_path(self, outage: int, number: int) -> Path:
        """The file for a run's output."""
        return self.path / "outages" / f"{outage}-{number}.log"

    def _write_plan(self) -> None:
        content = {
            "schema": SCHEMA,
            "owner": owner_of_this_process(self.path.name, self.path),
            "details": dict(self.plan.details),
            "matrix": to_json(self.plan.matrix),
            "expected": [[*cell, entry.verdict, entry.why] for cell, entry in self.plan.expected.items()],
        }
        RunFolder(self.path).write_json(self.path / PLAN, content)

    def _append(self, event: str, **fields: Any) -> None:
        with (self.path / ATTEMPTS).open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")

    def _lines(self, event: str) -> list[dict[str, Any]]:
        path = self.path / ATTEMPTS
        return [line for line in (read_lines(path) if path.exists() else ()) if line["event"] == event]

    def _end_last_run(self) -> None:
        for line in self._lines(_BEGAN)[-1:]:
            if Owner(line["pid"], line["started_s"], "", "", started=line.get("started")).lives():
                process = psutil.Process(line["pid"])
                process.terminate()
                if psutil.wait_procs([process], _END_TIMEOUT_S)[1]:
                    raise UsageError(f"a run of {self.path}, process {process.pid}, does not end; end it")


def new_night(
    results: Path,
    command: str,
    *,
    latest: bool,
    matrix_file: Path | None = None,
    expectations: Path | None = None,
    **axes: Any,
) -> Ledger:
    """Begin a night in a results folder. ``axes`` replace those of the file. Raises `UsageError` as `read_matrix`."""
    matrix = read_matrix(matrix_file, axes, newest_patches() if latest else lambda _: None)
    began_at = datetime.now(UTC).isoformat(timespec="seconds")
    details = {"began_at": began_at, "commit": commit_of_checkout(), "command": command}
    plan = Plan(matrix, expected(matrix.cells, read_expectations(expectations)), details)
    return Ledger.create(results / NIGHTLY / new_run_id(), plan)
