"""The verdict of a run folder: checkers over its evidence, nothing else."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from checkers import (
    aborted_to_committed,
    committed_to_aborted,
    doubts,
    exposure,
    outcomes,
    stuck_lso,
    tombstone_divergence,
)
from checkers.evidence import held, load, raise_if_damaged
from checkers.guarantees import every
from checkers.judged import judge
from harness import leftovers, verdict
from harness.errors import UsageError
from harness.guarantees import CHECKER
from harness.manifest import open_run
from harness.store import AFTER_REJOIN, HISTORY, REPORT, RunFolder
from harness.verdict import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from checkers.judged import Judged

T = TypeVar("T")
log = logging.getLogger("harness")

CHECKERS: dict[str, Callable[[Judged], DataFrame]] = {
    "stuck_lso": stuck_lso.check,
    "aborted_to_committed": aborted_to_committed.check,
    "committed_to_aborted": committed_to_aborted.check,
    "tombstone_divergence": tombstone_divergence.check,
    "doubts": doubts.check,
    "exposure": exposure.check,
    CHECKER: every.check,
}
OUTCOMES = "outcomes"
FINDERS = ("stuck_lso", "aborted_to_committed", "committed_to_aborted", "tombstone_divergence")
THREADS = 4


@dataclass(frozen=True)
class Judgement:
    """What is to be kept of a check: ``verdict.json``, and the rows of ``outcomes.jsonl`` (`checkers.outcomes`)."""

    verdict: dict[str, Any]
    outcomes: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class Prepared:
    """Checkers over some run folders: planned, and nothing read yet. ``raised``: which could not be planned."""

    problems: DataFrame
    rows: dict[str, DataFrame]
    raised: dict[str, str]


def prepare(spark: SparkSession, folders: Sequence[RunFolder]) -> Prepared:
    """Plan every checker over run folders that may still be empty: most of a check's time is planning."""
    evidence = load(spark, folders)
    judged = judge(evidence)
    tables = {**CHECKERS, OUTCOMES: outcomes.tell}
    rows, raised = each(tables, lambda name: held(tables[name](judged)))
    return Prepared(held(evidence.problems), rows, raised)


def run_checkers(prepared: Prepared) -> Results:
    """Read the run folders and check them. Raises `UsageError` for a damaged folder.

    A checker that raises does not end the others: its error is returned, and forbids ``clean``.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        damage = pool.submit(raise_if_damaged, prepared.problems)
        found, raised = each(prepared.rows, lambda name: dictionaries(prepared.rows[name]), using=pool.map)
        damage.result()
    return Results(
        findings=[row for name in FINDERS for row in found.get(name, [])],
        doubts=found.get("doubts", []),
        exposure=found.get("exposure", []),
        guarantees=found.get(CHECKER),
        outcomes=found.get(OUTCOMES, []),
        raised={**prepared.raised, **raised},
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


def open_run_folder(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return a finished run's folder and manifest. Raises `UsageError` for anything that is not one."""
    folder, manifest, owner = open_run(path, verdict.MANIFEST_FIELDS)
    if manifest["status"] == verdict.RUNNING:
        kept = leftovers.read_owner(leftovers.work_root() / folder.run_id)
        why = (
            f"its run is still going on (process {owner.pid})"
            if owner.lives()
            else f"its run was cut off; it can go on with `harness run --resume {path}`"
            if kept is not None and kept.resumable
            else "its run was cut off"
        )
        raise UsageError(f"{path} is half-written: {why}")
    if not folder.history_path.exists():
        raise UsageError(f"the run folder is damaged: {path} has no {HISTORY}")
    return folder, manifest


def judge_run(prepared: Callable[[], Prepared], folder: RunFolder, manifest: dict[str, Any]) -> Judgement:
    """Return what is to be said of one run.

    A run that did not go to its end is unknown, whatever it collected; only for others checkers are asked for.
    Raises `UsageError` for a damaged folder.
    """
    if manifest["status"] != verdict.COMPLETE:
        return Judgement(verdict.assemble(manifest, Results([], [], [], {})))
    if not has_final_snapshot(folder, manifest):
        raise UsageError(f"the run folder is damaged: {folder.path} lacks files of the snapshot {AFTER_REJOIN}")
    results = run_checkers(prepared())
    return Judgement(verdict.assemble(manifest, results, read_aftermath(folder)), results.outcomes)


def store(folder: RunFolder, judgement: Judgement) -> None:
    """Write what is to be kept, and the report, in place of what was there. Raises OSError where that cannot be."""
    folder.write_lines(folder.outcomes_path, judgement.outcomes)
    folder.write_json(folder.verdict_path, judgement.verdict)
    try:
        from harness.report.page import write_report  # noqa: PLC0415  (slow imports, and nothing else needs them)

        write_report(folder, judgement.verdict)
    except Exception as error:  # noqa: BLE001  (a page that cannot be drawn takes nothing from the verdict)
        log.warning("%s is not written: %s: %s", folder.path / REPORT, type(error).__name__, error)


def read_aftermath(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the lines of ``aftermath.jsonl``, none where there is none. Raises `UsageError` for a damaged one."""
    if not folder.aftermath_path.exists():
        return []
    try:
        return [json.loads(line) for line in folder.aftermath_path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise UsageError(f"the run folder is damaged: {folder.aftermath_path}: {error}") from error


def has_final_snapshot(folder: RunFolder, manifest: dict[str, Any]) -> bool:
    """Whether every replica that the run had has files of the last snapshot, as Kafka has them or set aside."""
    wanted = [
        folder.broker_snapshot(broker, AFTER_REJOIN) / f"{scenario['topic']}-{partition}"
        for scenario in manifest["scenarios"]
        for partition, brokers in scenario["replicas"].items()
        for broker in brokers
    ]
    return all(any(path.rglob("*.log")) for path in wanted)


def rehearse(spark: SparkSession, scratch_dir: Path) -> None:
    """Read an empty run folder: loads classes and starts Python workers while the cluster is busy elsewhere."""
    folder = RunFolder(scratch_dir / "rehearsal")
    raise_if_damaged(load(spark, [folder]).problems)
