"""The results of a night: the status of each cell, and summaries in JSON, Markdown and JUnit XML."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from junitparser.xunit2 import FlakyError, TestCase

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.escape import visible
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN, worst
from harness.nightly.ledger import Attempt, Plan, ScenarioResult
from harness.nightly.matrix import SOAK, Cell
from harness.nightly.night import is_refused
from harness.report.junit import add_problem, write_cases
from harness.run_folder.store import UNPROTECTED
from harness.targets import find_target, title_of
from harness.terminal import Table, Terminal, styled

SUITE = "harness nightly"
HEAD = ("anomaly", "payload", "client", "nemesis", "runtime", "protection")
"""The columns of the summary table before the columns of versions, and fields of `Cell`."""

_FOR_MARKDOWN: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~!"})


class Status(StrEnum):
    """The status of a cell, the most urgent first."""

    REGRESSED = "regressed"
    FIXED = "fixed upstream"
    OTHER_NAME = "found under another name"
    UNKNOWN = "unknown"
    FAILED = "failed"
    REFUSED = "refused"
    NOT_RUN = "not run"
    AS_EXPECTED = "as expected"


URGENCY: Final = list(Status)
CONTRADICTS: Final = frozenset({Status.REGRESSED, Status.FIXED, Status.OTHER_NAME})
"""There is a verdict, and it is not the expected one."""

Outcome: TypeAlias = "tuple[Status, str, ScenarioResult | None]"
"""The status of an attempt, the reason, and the result of the cell's scenario."""


@dataclass(frozen=True)
class CellResult:
    """A cell and its result: the most urgent of its repeats.

    ``verdicts``: of each repeat that was judged, in order. ``flaky``: why a run failed whose second attempt did not.
    ``why``: a sentence; ``witness``: a finding, where there is one. ``runs``: run folders, relative to the results.
    ``took_s``: its share of the runs that it has with other cells.
    """

    cell: Cell
    version: str
    expected: str
    expected_why: str
    status: Status
    why: str
    verdicts: tuple[str, ...]
    repeats: int
    flaky: tuple[str, ...]
    witness: str
    runs: tuple[str, ...]
    took_s: float


def strays_of(attempts: Sequence[Attempt]) -> list[str]:
    """Return the findings in topics of no cell: the control should have none."""
    return [f"{attempt.run_dir}: {line}" for attempt in attempts for line in attempt.strays]


def exit_code(results: Sequence[CellResult], strays: Sequence[str]) -> int:
    """Return 0 where all is as expected, 1 where a verdict is not the expected one, 2 where one is missing."""
    statuses = {result.status for result in results}
    if statuses & CONTRADICTS or strays:
        return EXIT_ANOMALY
    return EXIT_CLEAN if statuses == {Status.AS_EXPECTED} else EXIT_UNKNOWN


def results_of(plan: Plan, attempts: Sequence[Attempt]) -> list[CellResult]:
    """Return the result of every cell, in the order of the plan."""
    return [_result(plan, cell, attempts) for cell in plan.matrix.cells]


def _result(plan: Plan, cell: Cell, attempts: Sequence[Attempt]) -> CellResult:
    expected = plan.expected[cell]
    shares = {index: len(outage.cells) for index, outage in enumerate(plan.matrix.outages) if cell in outage.cells}
    repeats = [[attempt for attempt in attempts if attempt.outage == index] for index in shares]
    last = [repeat[-1] for repeat in repeats if repeat]
    counting = [_counting(cell, repeat) for repeat in repeats]

    def worst_of(outcomes: Iterable[Outcome]) -> Outcome:
        return min(outcomes, key=lambda outcome: URGENCY.index(outcome[0]))

    outcomes = [worst_of(_outcome(cell, expected.verdict, attempt) for attempt in repeat) for repeat in counting]
    status, why, result = worst_of(outcomes)
    versions = (attempt.version for repeat in repeats for attempt in repeat if attempt.version)
    recovered = [repeat for repeat in repeats if repeat and repeat[-1].failure is None]
    return CellResult(
        cell=cell,
        version=next(versions, find_target(cell.target).version),
        expected=expected.verdict,
        expected_why=expected.why,
        status=status,
        why=why,
        verdicts=tuple(result.verdict for _, _, result in outcomes if result is not None),
        repeats=len(repeats),
        flaky=tuple(attempt.failure for repeat in recovered for attempt in repeat if attempt.failure is not None),
        witness=result.witness if result else "",
        runs=tuple(attempt.run_dir for repeat in counting for attempt in repeat if attempt and attempt.run_dir),
        took_s=round(sum(attempt.took_s / shares[attempt.outage] for attempt in last), 1),
    )


def _counting(cell: Cell, repeat: Sequence[Attempt]) -> list[Attempt | None]:
    """Return the attempts of a repeat that count: the last one, and each before it with a finding."""
    finding = cell.scenario, ANOMALY
    former = [a for a in repeat[:-1] if any((r.scenario, r.verdict) == finding for r in a.scenario_results)]
    return [*former, repeat[-1] if repeat else None]


def _outcome(cell: Cell, expected: str, last: Attempt | None) -> Outcome:
    """Return the status of a repeat by an attempt that counts, the reason, and the result of the cell's scenario."""
    if last is None:
        return Status.NOT_RUN, "the time was used up before", None
    result = next((result for result in last.scenario_results if result.scenario == cell.scenario), None)
    # A finding stands, whatever happened to the run afterwards.
    if result is None or (last.failure is not None and result.verdict != ANOMALY):
        return Status.REFUSED if is_refused(last) else Status.FAILED, str(last.failure), result
    status, why = Status.AS_EXPECTED, result.reason
    if result.verdict == UNKNOWN:
        status = Status.UNKNOWN
    elif result.verdict not in {expected, CLEAN if expected == AS_EXPECTED else expected}:
        status = Status.FIXED if expected == ANOMALY else Status.REGRESSED
    elif expected == ANOMALY and cell.scenario != SOAK and result.anomalies != (cell.anomaly,):
        status, why = Status.OTHER_NAME, f"{', '.join(result.anomalies)}: {why}"
    return status, why, result


class Grid(NamedTuple):
    """The summary table. ``rows``: the `HEAD` fields, and a result a column: None where the target has no such cell."""

    columns: list[str]
    rows: list[tuple[tuple[str, ...], list[CellResult | None]]]


def grid(results: Sequence[CellResult]) -> Grid:
    """Arrange results; columns in the matrix's order of targets, rows in its order of the rest."""
    versions = {result.cell.target: result.version for result in results}
    rows: dict[tuple[str, ...], dict[str, CellResult]] = {}
    for result in results:
        head = tuple(getattr(result.cell, name) for name in HEAD)
        rows.setdefault(head, {})[result.cell.target] = result
    return Grid(
        [title_of(target, version) for target, version in versions.items()],
        [(head, [by_target.get(target) for target in versions]) for head, by_target in rows.items()],
    )


def cell_text(result: CellResult) -> str:
    """Return the text of a cell of the table."""
    verdict = worst(result.verdicts) if result.status is Status.AS_EXPECTED else result.status.upper()
    count = f" {len(result.verdicts)}/{result.repeats}" if result.repeats > 1 else ""
    return f"{verdict}{count}{' (flaky)' if result.flaky else ''}"


def summary(plan: Plan, results: Sequence[CellResult], strays: Sequence[str]) -> dict[str, Any]:
    """Return the content of ``summary.json``: the plan's details, counts by status, and every cell's `CellResult`."""
    counted = Counter(sorted((result.status for result in results), key=URGENCY.index))
    return {
        **plan.details,
        "exit_code": exit_code(results, strays),
        "cells_as_expected": counted[Status.AS_EXPECTED],
        "statuses": {str(status): count for status, count in counted.items()},
        "flaky": sum(bool(result.flaky) for result in results),
        "strays": list(strays),
        "cells": [{**asdict(result), "cell": result.cell._asdict()} for result in results],
    }


def markdown(plan: Plan, results: Sequence[CellResult], strays: Sequence[str]) -> str:
    """Return the table of all cells, and a line for each cell that is not as expected."""
    templates = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        autoescape=False,  # noqa: S701  (Markdown: `_escaped` is applied to all texts)
    )  # fmt: skip
    templates.filters |= {"escaped": _escaped, "code": _code}
    others = [result for result in results if result.status is not Status.AS_EXPECTED]
    return templates.get_template("summary.md.j2").render(
        details=plan.details,
        head=HEAD,
        grid=grid(results),
        cell_text=cell_text,
        as_expected=len(results) - len(others),
        cells=len(results),
        others=sorted(others, key=lambda result: URGENCY.index(result.status)),
        flaky=[result for result in results if result.flaky],
        strays=strays,
    )


def show(out: Terminal, results: Sequence[CellResult], strays: Sequence[str]) -> None:
    """Print the table of all cells, and a line for each cell that is not as expected."""
    shown = grid(results)
    styles = {status: "bold red" if status in CONTRADICTS else "bold yellow" for status in Status}
    styles[Status.AS_EXPECTED] = "green"
    rows = [
        (*names, *("" if cell is None else styled(cell_text(cell), styles[cell.status]) for cell in cells))
        for names, cells in shown.rows
    ]
    out.table(Table((*HEAD, *shown.columns), rows))
    for result in results:
        if result.status is not Status.AS_EXPECTED:
            status = styled(result.status.upper(), styles[result.status])
            out.line(status, f" {result.cell}: expected {result.expected}: {result.why}")
        for failure in result.flaky:
            out.line(f"FLAKY {result.cell}: {failure}")
    for stray in strays:
        out.line(f"FINDING OUTSIDE ALL CELLS {stray}")


def write_junit(path: Path, results: Sequence[CellResult], strays: Sequence[str]) -> None:
    """Write a test case a cell: an unexpected verdict is a failure, a missing verdict an error."""
    cases = []
    for result in results:
        cell = result.cell
        protection = () if cell.protection == UNPROTECTED else (cell.protection,)
        suite_of_cell = ".".join((cell.target, cell.nemesis, cell.client, cell.runtime, *protection))
        case = TestCase(str(cell), suite_of_cell, result.took_s)
        if result.status is not Status.AS_EXPECTED:
            add_problem(
                case,
                f"{result.status}: expected {result.expected}",
                str(result.status),
                filter(None, (result.why, result.witness, *result.runs)),
                is_failure=result.status in CONTRADICTS,
            )
        for failure in result.flaky:
            case.add_interim_result(FlakyError(visible(failure), "failed once, and not at the second attempt"))
        cases.append(case)
    for stray in strays:
        case = TestCase("no finding lies outside all cells", SUITE)
        add_problem(case, stray, "stray")
        cases.append(case)
    write_cases(path, SUITE, cases)


def _code(text: str) -> str:
    """Return a text as code in Markdown, between more backticks than it has."""
    shown = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def _escaped(text: str) -> str:
    """Return a text that Markdown shows unchanged, in one line."""
    return " ".join(visible(text, line_break=" ").split()).translate(_FOR_MARKDOWN)
