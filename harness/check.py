"""The verdict of a run folder: checkers over its evidence, nothing else."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from checkers import (
    aborted_to_committed,
    committed_to_aborted,
    doubts,
    exposure,
    stuck_lso,
    tombstone_divergence,
)
from checkers.evidence import load, raise_if_corrupt
from checkers.judged import judge
from harness import leftovers, verdict
from harness.errors import HarnessError, UsageError
from harness.store import AFTER_REJOIN, HISTORY, MANIFEST, RunFolder
from harness.verdict import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from checkers.judged import Judged

CHECKERS: dict[str, Callable[[Judged], DataFrame]] = {
    "stuck_lso": stuck_lso.check,
    "aborted_to_committed": aborted_to_committed.check,
    "committed_to_aborted": committed_to_aborted.check,
    "tombstone_divergence": tombstone_divergence.check,
    "doubts": doubts.check,
    "exposure": exposure.check,
}
FINDERS = ("stuck_lso", "aborted_to_committed", "committed_to_aborted", "tombstone_divergence")
THREADS = 2


def run_checkers(spark: SparkSession, folders: Sequence[RunFolder]) -> Results:
    """Check run folders, all in one job. Raises `UsageError` for a damaged folder.

    A checker that raises does not end the others: its error is returned, and forbids ``clean``.
    """
    evidence = load(spark, folders)
    raise_if_corrupt(evidence)
    judged = judge(evidence)
    raised: dict[str, str] = {}

    def rows(name: str) -> list[dict[str, Any]]:
        try:
            return [row.asDict(recursive=True) for row in CHECKERS[name](judged).collect()]
        except Exception as error:  # noqa: BLE001  (whatever it is, it becomes an unknown)
            raised[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return []

    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(CHECKERS, pool.map(rows, CHECKERS), strict=True))
    return Results(
        findings=[row for name in FINDERS for row in found[name]],
        doubts=found["doubts"],
        exposure=found["exposure"],
        raised=raised,
    )


def open_run_folder(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return a finished run's folder and manifest. Raises `UsageError` for anything that is not one."""
    folder = RunFolder(path.resolve())
    if not path.is_dir():
        raise UsageError(f"{path} is no folder; give a run folder, such as results/kafka-3.9/stuck-lso/latest")
    try:
        manifest = json.loads(folder.manifest_path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path} is no run folder: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"the run folder is damaged: {folder.manifest_path}: {error}") from error
    missing = [name for name in verdict.MANIFEST_FIELDS if not isinstance(manifest, dict) or name not in manifest]
    if missing:
        raise UsageError(f"the run folder is damaged: {folder.manifest_path} lacks {', '.join(missing)}")
    if manifest["status"] == verdict.RUNNING:
        try:
            owner = leftovers.Owner(**manifest["owner"])
        except TypeError as error:
            raise UsageError(f"the run folder is damaged: {folder.manifest_path} names no owner") from error
        why = f"its run is still going on (process {owner.pid})" if owner.lives() else "its run was cut off"
        raise UsageError(f"{path} is half-written: {why}")
    if not folder.history_path.exists():
        raise UsageError(f"the run folder is damaged: {path} has no {HISTORY}")
    return folder, manifest


def judge_run(spark: Callable[[], SparkSession], folder: RunFolder, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of one run, as in ``verdict.json``.

    A run that did not go to its end is unknown, whatever it collected; only for others Spark is asked for.
    Raises `UsageError` for a damaged folder.
    """
    if manifest["status"] != verdict.COMPLETE:
        return verdict.assemble(manifest, Results([], [], [], {}))
    if not has_final_snapshot(folder, manifest):
        raise UsageError(f"the run folder is damaged: {folder.path} lacks files of the snapshot {AFTER_REJOIN}")
    return verdict.assemble(manifest, run_checkers(spark(), [folder]))


def has_final_snapshot(folder: RunFolder, manifest: dict[str, Any]) -> bool:
    """Whether every replica that the run had has files of the last snapshot."""
    wanted = [
        folder.broker_snapshot(broker, AFTER_REJOIN) / f"{scenario['topic']}-0"
        for scenario in manifest["scenarios"]
        for broker in scenario["replicas"]
    ]
    return all(any(path.glob("*.log")) for path in wanted)


def rehearse(spark: SparkSession, scratch_dir: Path) -> None:
    """Check an empty run folder: loads classes and starts Python workers while the cluster is busy elsewhere."""
    folder = RunFolder(scratch_dir / "rehearsal")
    held = folder.broker_snapshot(1, AFTER_REJOIN) / "rehearsal-0"
    held.mkdir(parents=True)
    for name in ("00000000000000000000.log", "00000000000000000000.txnindex"):
        (held / name).touch()
    folder.history_path.touch()
    folder.observations_path.touch()
    raised = run_checkers(spark, [folder]).raised
    if raised:
        raise HarnessError(f"a checker fails on an empty run folder: {raised}")
