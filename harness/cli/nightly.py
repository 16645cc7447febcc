"""The ``nightly`` command."""

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import cloup

from harness.cli.options import parameters as kinds
from harness.cli.options.common import OUTPUT, RESULTS, Group, command, envelope, leave_out, options_given
from harness.console import JSON, print_progress
from harness.errors import UsageError, interruptible
from harness.escape import to_json
from harness.terminal import stdout

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
def nightly(results: Path, night: Path | None, output: str, **options: Any) -> int:
    """Run a matrix of versions and faults, and compare the verdicts with expectations.

    Exit codes: 0 all verdicts are as expected, 1 some are not, 2 some cells have no verdict, 254 usage or set-up error,
    255 failed.
    """
    from harness.nightly import night as nights  # noqa: PLC0415
    from harness.nightly import reports  # noqa: PLC0415  (slow imports, only where needed)
    from harness.nightly.ledger import Ledger, new_night  # noqa: PLC0415

    junit, markdown, budget_s = (options.pop(name) for name in ("junit", "markdown", "budget_s"))
    kinds.raise_unless_writable(junit, markdown)
    if night is None:
        given = {name: value for name, value in options.items() if value is not None}
        ledger = new_night(results, shlex.join(["harness", *sys.argv[1:]]), **given)
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
        problem = f"{error.filename or '--junit or --markdown'} cannot be written: {error.strerror}"
        raise UsageError(f"{problem}; the same is in {ledger.path}") from error
    if output == JSON:
        stdout().json(summary)
    else:
        reports.show(stdout(), results_of_cells, strays)
        stdout().line(f"{ledger.path}/   (exit code {summary['exit_code']})")
    return int(summary["exit_code"])
