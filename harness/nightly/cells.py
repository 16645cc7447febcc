"""The status of each cell of the matrix: its verdicts compared with the expected one."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN
from harness.nightly.ledger import Attempt, Plan, ScenarioResult
from harness.nightly.matrix import SOAK, Cell
from harness.nightly.night import is_refused
from harness.targets import find_target


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


CONTRADICTS: Final = frozenset({Status.REGRESSED, Status.FIXED, Status.OTHER_NAME})
"""There is a verdict, and it is not the expected one."""


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


def results_of(plan: Plan, attempts: Sequence[Attempt]) -> list[CellResult]:
    """Return the result of every cell, in the order of the plan."""
    return [_result(plan, cell, attempts) for cell in plan.matrix.cells]


def strays_of(attempts: Sequence[Attempt]) -> list[str]:
    """Return the findings in topics of no cell: the control should have none."""
    return [f"{attempt.run_dir}: {line}" for attempt in attempts for line in attempt.strays]


def exit_code(results: Sequence[CellResult], strays: Sequence[str]) -> int:
    """Return 0 where all is as expected, 1 where a verdict is not the expected one, 2 where one is missing."""
    statuses = {result.status for result in results}
    if statuses & CONTRADICTS or strays:
        return EXIT_ANOMALY
    return EXIT_CLEAN if statuses <= {Status.AS_EXPECTED} else EXIT_UNKNOWN


def _result(plan: Plan, cell: Cell, attempts: Sequence[Attempt]) -> CellResult:
    expected = plan.expected[cell]
    shares = {index: len(outage.cells) for index, outage in enumerate(plan.matrix.outages) if cell in outage.cells}
    repeats = [[attempt for attempt in attempts if attempt.outage == index] for index in shares]
    last = [repeat[-1] for repeat in repeats if repeat]
    outcomes = [_outcome(cell, expected.verdict, repeat[-1] if repeat else None) for repeat in repeats]
    order = list(Status)
    status, why, result = min(outcomes, key=lambda outcome: order.index(outcome[0]))
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
        runs=tuple(attempt.run_dir for attempt in last if attempt.run_dir),
        took_s=round(sum(attempt.took_s / shares[attempt.outage] for attempt in last), 1),
    )


def _outcome(cell: Cell, expected: str, last: Attempt | None) -> tuple[Status, str, ScenarioResult | None]:
    """Return the status of a repeat by its last attempt, the reason, and the result of the cell's scenario."""
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
