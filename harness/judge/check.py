"""The verdict of a run folder: checkers over its evidence, nothing else."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from checkers.anomalies import FINDERS
from checkers.consistency import doubts, exposure
from checkers.evidence.tables import PLANNERS, checkpointed, load, raise_if_damaged
from checkers.guarantees import all_guarantees
from checkers.replay import outcomes
from checkers.replay.judged import judge
from harness.errors import UsageError
from harness.judge import verdict
from harness.judge.guarantees import CHECKER
from harness.judge.verdict import Results
from harness.run_folder import inventory
from harness.run_folder.store import RunFolder
from harness.spark.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from checkers.replay.judged import Judged
    from harness.run_folder.inventory import Difference

T = TypeVar("T")
log = logging.getLogger("harness")

CHECKERS: dict[str, Callable[[Judged], DataFrame]] = {
    # What takes longest to plan comes first, so that no thread is left alone with it.
    CHECKER: all_guarantees.check,
    "doubts": doubts.check,
    "exposure": exposure.check,
    **{name: finder.check for name, finder in FINDERS.items() if finder.in_runs},
}
OUTCOMES = "outcomes"
TABLES = {**CHECKERS, OUTCOMES: outcomes.transaction_outcomes}
THREADS = 4


@dataclass(frozen=True)
class Judgement:
    """What is to be kept of a check: ``verdict.json``, and the rows of ``outcomes.jsonl``.

    The latter are those of `checkers.replay.outcomes`.
    """

    verdict: dict[str, Any]
    outcomes: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class Prepared:
    """Checkers over some run folders, planned.

    ``problems``: what is damaged. ``raised``: which checkers could not be planned.
    """

    session: SparkSession
    problems: DataFrame
    rows: dict[str, DataFrame]
    raised: dict[str, str]


def prepare(spark: SparkSession, folders: Sequence[RunFolder]) -> Prepared:
    """Plan every checker over run folders that may still be empty: most of a check's time is planning."""
    evidence = load(spark, folders)
    judged = judge(evidence)
    with threads(spark, PLANNERS) as pool:
        rows, raised = each(TABLES, lambda name: checkpointed(TABLES[name](judged)), using=pool.map)
    return Prepared(spark, checkpointed(evidence.problems), rows, raised)


def run_checkers(prepared: Prepared) -> Results:
    """Read the run folders and check them. Raises `UsageError` for a damaged folder.

    A checker that raises does not end the others: its error is returned, and forbids ``clean``.
    """
    with threads(prepared.session, THREADS) as pool:
        damage = pool.submit(raise_if_damaged, prepared.problems)
        found, raised = each(prepared.rows, lambda name: dictionaries(prepared.rows[name]), using=pool.map)
        damage.result()
    return _results(found, {**prepared.raised, **raised})


def check_folders(spark: SparkSession, folders: Sequence[RunFolder]) -> Results:
    """Check run folders that are complete, each checker as soon as it is planned. Raises as `run_checkers`."""
    evidence = load(spark, folders)
    with threads(spark, THREADS) as pool:
        # To tell what is damaged takes all that is there; what was read is kept for the checkers.
        damage = pool.submit(raise_if_damaged, evidence.problems)
        judged = judge(evidence)
        found, raised = each(TABLES, lambda name: dictionaries(TABLES[name](judged)), using=pool.map)
        damage.result()
    return _results(found, raised)


def _results(found: dict[str, list[dict[str, Any]]], raised: dict[str, str]) -> Results:
    return Results(
        findings=[row for name in FINDERS for row in found.get(name, [])],
        doubts=found.get("doubts", []),
        exposure=found.get("exposure", []),
        guarantees=found.get(CHECKER),
        outcomes=found.get(OUTCOMES, []),
        raised=raised,
    )


def each(names: Iterable[str], action: Callable[[str], T], using: Any = map) -> tuple[dict[str, T], dict[str, str]]:
    """Return what the action gave for each name, and in words what it raised."""
    done: dict[str, T] = {}
    raised: dict[str, str] = {}

    def attempt(name: str) -> None:
        try:
            done[name] = action(name)
        except Exception as error:  # noqa: BLE001  (whatever it is, it becomes an unknown)
            raised[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"

    list(using(attempt, names))
    return done, raised


def dictionaries(rows: DataFrame) -> list[dict[str, Any]]:
    """Compute a checker's rows: few, whatever it looked at."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def judge_run(
    results: Results | None, folder: RunFolder, manifest: dict[str, Any], missing: Sequence[Difference] = ()
) -> Judgement:
    """Return what is to be said of one run.

    ``results``: None of a run that did not go to its end: it is unknown, whatever it collected. ``missing``: the
    evidence that is not as the run left it, and that the checkers did not read. Raises `UsageError` for a damaged
    folder.
    """
    aftermath = [] if results is None else read_aftermath(inventory.without(folder, missing))
    found = Results([], [], [], {}) if results is None else results
    said = verdict.assemble(manifest, found, aftermath, missing=missing, notes=inventory.notes(manifest))
    return Judgement(said, found.outcomes)


def store(folder: RunFolder, judgement: Judgement) -> None:
    """Write what is to be kept in place of what was there. Raises OSError where that cannot be.

    A former verdict that differs is kept under another name.
    """
    former = folder.keep_former_verdict(judgement.verdict)
    if former is not None:
        log.warning("the former verdict differs, and is kept as %s", former.name)
    folder.write_lines(folder.outcomes_path, judgement.outcomes)
    folder.write_json(folder.verdict_path, judgement.verdict)


def read_aftermath(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the lines of ``aftermath.jsonl``, none where there is none. Raises `UsageError` for a damaged one."""
    if not folder.has(folder.aftermath_path):
        return []
    try:
        return [json.loads(line) for line in folder.aftermath_path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise UsageError(f"the run folder is damaged: {folder.aftermath_path}: {error}") from error


def rehearse(spark: SparkSession, scratch_dir: Path) -> None:
    """Read an empty run folder: loads classes and starts Python workers while the cluster is busy elsewhere."""
    folder = RunFolder(scratch_dir / "rehearsal")
    raise_if_damaged(load(spark, [folder]).problems)
