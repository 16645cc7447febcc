"""The summary table: a row for each anomaly, payload, client, nemesis and runtime, a column a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.nightly.cells import Status
from harness.plan.catalog import BY_NAME
from harness.targets import title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.nightly.cells import CellResult

HEAD = ("anomaly", "payload", "client", "nemesis", "runtime")


@dataclass(frozen=True)
class Grid:
    """``columns``: titles of the target columns. ``rows``: the `HEAD` fields, and a result a column, or None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[CellResult | None, ...]], ...]


def grid(results: Sequence[CellResult]) -> Grid:
    """Arrange results; columns in the matrix's order of targets, rows in its order of the rest."""
    columns = list(dict.fromkeys(result.cell.target for result in results))
    versions = {result.cell.target: result.version for result in results}
    rows: dict[tuple[str, ...], dict[str, CellResult]] = {}
    for result in results:
        cell = result.cell
        scenario = BY_NAME[cell.scenario]
        head = (str(scenario.anomaly), scenario.payload, cell.client, cell.nemesis, cell.runtime)
        rows.setdefault(head, {})[cell.target] = result
    return Grid(
        tuple(title_of(target, versions[target]) for target in columns),
        tuple((head, tuple(of_target.get(target) for target in columns)) for head, of_target in rows.items()),
    )


def cell_text(result: CellResult) -> str:
    """Return the text of a cell of the table."""
    verdict = result.expected if result.status is Status.AS_EXPECTED else result.status.upper()
    count = f" {len(result.verdicts)}/{result.repeats}" if result.repeats > 1 else ""
    return f"{verdict}{count}{' (flaky)' if result.flaky else ''}"
