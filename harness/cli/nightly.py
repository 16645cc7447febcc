"""The ``nightly`` command."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloup

from harness.cli.options import parameters as kinds
from harness.cli.options.common import OUTPUT, RESULTS, Group, command, envelope, leave_out, options_given
from harness.console import JSON, print_progress
from harness.errors import UsageError, interruptible
from harness.escape import to_json
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from harness.nightly.ledger import Ledger
    from harness.nightly.reports import CellResult

NIGHT, MATRIX = map(Group, ("Night", "Matrix"))


# fmt: off
OPTIONS = (
    cloup.Argument(["matrix_file"], metavar="[MATRIX.toml]", required=False, type=kinds.FILE_TO_READ),
    MATRIX.option("--targets", kinds.list_of(kinds.TARGET, "T,…"),
                  "Targets, instead of the file's: see `harness targets`."),
    MATRIX.option("--anomalies", kinds.list_of(kinds.ANOMALIES, "A,…"), "all, or names: see `harness anomalies`."),
    MATRIX.option("--clients", kinds.list_of(kinds.CLIENT, "C,…"), "librdkafka, java."),
    MATRIX.option("--nemeses", kinds.list_of(kinds.NEMESIS, "N,…"), "Faults: see `harness nemeses`."),
    MATRIX.option("--runtimes", kinds.list_of(kinds.RUNTIME, "R,…"), "local, docker."),
    MATRIX.option("--protections", kinds.list_of(kinds.PROTECTION, "P,…"), "none, gate, guard."),
    MATRIX.option("--repeats", kinds.Count(1, 1000), "Number of runs of each cell."),
    MATRIX.flag("--latest", "Also run the newest patch release of each line."),
    NIGHT.option("--expectations", kinds.FILE_TO_READ,
                 "File of expected verdicts; takes precedence over the built-in ones."),
    NIGHT.option("--time-budget", kinds.Number(0, kinds.LONGEST_TIME_S, "S", min_open=True),
                 "Start no run that may end later than after S seconds.", name="budget_s"),
    NIGHT.option("--resume", kinds.FilePath(file_okay=False, metavar="NIGHT"),
                 "Resume an interrupted night: results/nightly/<id>.", name="night"),
    RESULTS,
    OUTPUT.option("--junit", kinds.FILE, "Also write JUnit XML."),
    OUTPUT.option("--markdown", kinds.FILE, "Also append a summary in Markdown."),
)
# fmt: on


@command(
    "harness nightly --targets kafka-3.9,kafka-4.4 --nemeses kill,none --junit nightly.xml",
    "harness nightly matrix.toml --latest --time-budget 7200",
    options=OPTIONS,
)
def nightly(
    *,
    matrix_file: Path | None,
    night: Path | None,
    results: Path,
    junit: Path | None,
    markdown: Path | None,
    output: str,
    budget_s: float | None,
    expectations: Path | None,
    latest: bool,
    **axes: Any,
) -> int:
    """Run a matrix of versions and faults, and compare the verdicts with expectations.

    Exit codes: 0 all verdicts are as expected, 1 some are not, 2 some cells have no verdict, 254 usage or set-up error,
    255 failed.
    """
    from harness.nightly import night as nights  # noqa: PLC0415
    from harness.nightly import reports  # noqa: PLC0415  (slow imports, only where needed)
    from harness.nightly.ledger import Ledger  # noqa: PLC0415

    axes_given = {name: value for name, value in axes.items() if value is not None}
    if night is None:
        ledger = _new_night(matrix_file, results, expectations, axes_given, latest=latest)
    else:
        others = options_given() - {"night", "budget_s", "junit", "markdown", "output"}
        leave_out(others, "--resume continues the night's own plan")
        ledger = Ledger.reopen(night.absolute())
        results = ledger.path.parent.parent
    print_progress(f"{ledger.path}: {len(ledger.plan.matrix.cells)} cells, {len(ledger.plan.matrix.outages)} runs")
    run_one = partial(nights.run_process, ledger, results.absolute())
    remaining = f"finished runs are in {ledger.path}/; continue with `harness nightly --resume {ledger.path}`"
    with interruptible(lambda: remaining):
        nights.work(ledger, run_one, print_progress, budget_s=budget_s, now_s=time.monotonic)
    attempts = ledger.attempts()
    results_of_cells, strays = reports.results_of(ledger.plan, attempts), reports.strays_of(attempts)
    summary = envelope(**reports.summary(ledger.plan, results_of_cells, strays))
    text = reports.markdown(ledger.plan, results_of_cells, strays)
    (ledger.path / "summary.json").write_text(to_json(summary, indent=2) + "\n")
    (ledger.path / "summary.md").write_text(text)
    reports.write_junit(ledger.path / "junit.xml", results_of_cells, strays)
    try:
        if junit is not None:
            reports.write_junit(junit, results_of_cells, strays)
        if markdown is not None:
            with markdown.open("a") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written: {error.strerror}; the same is in {ledger.path}"
        ) from error
    if output == JSON:
        stdout().json(summary)
    else:
        _show(results_of_cells, strays)
        stdout().line(f"{ledger.path}/   (exit code {summary['exit_code']})")
    return int(summary["exit_code"])


def _new_night(
    matrix_file: Path | None, results: Path, expectations: Path | None, axes_given: dict[str, Any], *, latest: bool
) -> Ledger:
    from harness.nightly.expectations import expected, read_expectations  # noqa: PLC0415
    from harness.nightly.latest import newest_patches  # noqa: PLC0415
    from harness.nightly.ledger import NIGHTLY, Ledger, Plan  # noqa: PLC0415
    from harness.nightly.matrix import read_matrix  # noqa: PLC0415
    from harness.play.begin import commit_of_checkout  # noqa: PLC0415
    from harness.run_folder.store import new_run_id  # noqa: PLC0415

    matrix = read_matrix(matrix_file, axes_given, newest_patches() if latest else lambda _: None)
    details = {
        "began_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_of_checkout(),
        "command": shlex.join(["harness", *sys.argv[1:]]),
    }
    plan = Plan(matrix, expected(matrix.cells, read_expectations(expectations)), details)
    return Ledger.create(results / NIGHTLY / new_run_id(), plan)


def _show(results_of_cells: list[CellResult], strays: list[str]) -> None:
    from harness.nightly.reports import CONTRADICTS, HEAD, Status, cell_text, grid  # noqa: PLC0415

    shown, out = grid(results_of_cells), stdout()
    styles = {status: "bold red" if status in CONTRADICTS else "bold yellow" for status in Status}
    styles[Status.AS_EXPECTED] = "green"
    rows = [
        (*names, *("" if cell is None else styled(cell_text(cell), styles[cell.status]) for cell in results))
        for names, results in shown.rows
    ]
    out.table(Table((*HEAD, *shown.columns), rows))
    for result in results_of_cells:
        if result.status is not Status.AS_EXPECTED:
            status = styled(result.status.upper(), styles[result.status])
            out.line(status, f" {result.cell}: expected {result.expected}: {result.why}")
        for failure in result.flaky:
            out.line(f"FLAKY {result.cell}: {failure}")
    for stray in strays:
        out.line(f"FINDING OUTSIDE ALL CELLS {stray}")
