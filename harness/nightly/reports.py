"""A night's summary for machines and people: JSON, Markdown for a pull request or a step, and JUnit XML."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from junitparser.xunit2 import FlakyError, TestCase

from harness.escape import visible
from harness.judge.verdict import worst
from harness.nightly.cells import CONTRADICTS, CellResult, Status, exit_code
from harness.nightly.ledger import Plan
from harness.report.junit import add_problem, write_cases
from harness.run_folder.store import UNPROTECTED
from harness.targets import title_of

SUITE = "harness nightly"
HEAD = ("anomaly", "payload", "client", "nemesis", "runtime", "protection")
"""The columns of the summary table before the columns of versions, and fields of `Cell`."""

_FOR_MARKDOWN: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~!"})


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
    counted = Counter(result.status for result in results)
    return {
        **plan.details,
        "exit_code": exit_code(results, strays),
        "cells_as_expected": counted[Status.AS_EXPECTED],
        "statuses": {str(status): counted[status] for status in Status if counted[status]},
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
    order = list(Status)
    others = [result for result in results if result.status is not Status.AS_EXPECTED]
    return templates.get_template("summary.md.j2").render(
        details=plan.details,
        head=HEAD,
        grid=grid(results),
        cell_text=cell_text,
        as_expected=len(results) - len(others),
        cells=len(results),
        others=sorted(others, key=lambda result: order.index(result.status)),
        flaky=[result for result in results if result.flaky],
        strays=strays,
    )


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
