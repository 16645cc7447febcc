"""The verdict of a run folder: runs the checkers over its evidence."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from checkers import guarantees, served
from checkers.anomalies import FINDERS
from checkers.consistency import doubts, exposure
from checkers.evidence.tables import PLANNERS, checkpointed, load, raise_if_damaged
from checkers.finding import completed
from checkers.replay.judged import Judged, judge, transaction_outcomes
from harness.json_codec import from_json, to_json
from harness.judge import consequences
from harness.judge.earned import ProtectionRecord, came_back_at_ms
from harness.judge.finding import CheckerRow, finding_of
from harness.judge.group_offsets import wrong_offsets
from harness.judge.guarantees import CHECKER
from harness.judge.run_verdict import Results, assemble
from harness.judge.verdict import Doubt, Verdict
from harness.run_folder import inventory
from harness.run_folder.history import read_lines
from harness.run_folder.inventory import EvidenceDifference
from harness.run_folder.store import APPLICATIONS, GATES, PROTECTION_FILES, RunFolder, protection_of
from harness.schedules.catalog import SERVED
from harness.schedules.scenario import Critical
from harness.spark.jobs import describe, raise_if_executor_lost, threads

T = TypeVar("T")
log = logging.getLogger("harness")

CHECKERS: dict[str, Callable[[Judged], DataFrame]] = {
    # The checker that takes longest to plan comes first, so that no thread runs it alone at the end.
    CHECKER: guarantees.check,
    "doubts": doubts.check,
    "exposure": exposure.check,
    **{name: finder.check for name, finder in FINDERS.items() if finder.in_runs},
}
OUTCOMES = "outcomes"
TABLES = {**CHECKERS, OUTCOMES: transaction_outcomes}
SERVED_TABLES = {SERVED: served.check, "exposure": served.exposure}
"""The tables of runs that are judged by what clients are served."""
_NAMES = frozenset({SERVED, *(finder.name for finder in FINDERS.values())})
THREADS = 4


@dataclass(frozen=True)
class Prepared:
    """Planned checkers over some run folders; ``raised``: the errors of checkers that could not be planned."""

    problems: DataFrame
    rows: dict[str, DataFrame]
    raised: dict[str, str]


def prepare(spark: SparkSession, folders: Sequence[RunFolder]) -> Prepared:
    """Plan every checker over run folders that may still be empty: most of a check's time is planning."""
    evidence = load(spark, folders)
    rows, raised = plan(judge(evidence), _tables(folders))
    return Prepared(checkpointed(evidence.problems), rows, raised)


def _tables(folders: Sequence[RunFolder]) -> Mapping[str, Callable[[Judged], DataFrame]]:
    manifests = [json.loads(folder.manifest_path.read_text()) for folder in folders if folder.manifest_path.exists()]
    scenarios = (scenario for manifest in manifests for scenario in manifest.get("scenarios", ()))
    return SERVED_TABLES if any(Critical.SUPERSEDED in s["critical"] for s in scenarios) else TABLES


def plan(
    judged: Judged, checkers: Mapping[str, Callable[[Judged], DataFrame]]
) -> tuple[dict[str, DataFrame], dict[str, str]]:
    """Plan checkers in several threads; return their tables, and the errors of checkers that could not be planned."""
    with threads(judged.replicas.sparkSession, PLANNERS) as pool:
        return each(checkers, lambda name: checkpointed(checkers[name](judged)), using=pool.map)


def run_checkers(prepared: Prepared) -> Results:
    """Read the run folder and check it. Raises as `compute_rows`."""
    return results_of(*compute_rows(prepared))


def compute_rows(prepared: Prepared) -> tuple[dict[str, list[CheckerRow]], dict[str, str]]:
    """Read the run folders and check them; return the rows of each table, and the errors of checkers that raised.

    A checker that raises does not end the others; its error forbids ``clean``. Raises `UsageError` for damaged folders.
    """
    with threads(prepared.problems.sparkSession, THREADS) as pool:
        damage = pool.submit(raise_if_damaged, prepared.problems)
        rows, raised = each(prepared.rows, lambda name: collected(prepared.rows[name], name), using=pool.map)
        damage.result()
    return rows, {**prepared.raised, **raised}


def check_folder(spark: SparkSession, folder: RunFolder) -> Results:
    """Check a complete run folder, each checker as soon as it is planned. Raises as `run_checkers`."""
    evidence = load(spark, [folder])
    with threads(spark, PLANNERS) as pool:
        # Damage is found by reading all evidence, which stays cached for the checkers.
        damage = pool.submit(raise_if_damaged, evidence.problems)
        judged = judge(evidence)
        tables = _tables([folder])
        rows_by_table, raised = each(tables, lambda name: collected(tables[name](judged), name), using=pool.map)
        damage.result()
    return results_of(rows_by_table, raised)


def results_of(rows_by_table: Mapping[str, Sequence[CheckerRow]], raised: Mapping[str, str]) -> Results:
    """Return the results for one run of the rows of each table."""
    return Results(
        findings=[finding_of(row) for name in (*FINDERS, SERVED) for row in rows_by_table.get(name, ())],
        doubts=[from_json(Doubt, row) for row in rows_by_table.get("doubts", ())],
        exposure=rows_by_table.get("exposure", ()),
        guarantees=rows_by_table.get(CHECKER, () if SERVED in rows_by_table else None),
        outcomes=rows_by_table.get(OUTCOMES, ()),
        raised=raised,
    )


def each(names: Iterable[str], action: Callable[[str], T], using: Any = map) -> tuple[dict[str, T], dict[str, str]]:
    """Return the action's results, and the errors of the others, by name. Raises as `raise_if_executor_lost`."""
    done: dict[str, T] = {}
    raised: dict[str, str] = {}

    def attempt(name: str) -> None:
        try:
            done[name] = action(name)
        except Exception as error:  # noqa: BLE001  (any error makes the verdict unknown)
            raise_if_executor_lost(error)
            raised[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"

    list(using(attempt, names))
    return done, raised


def collected(rows: DataFrame, name: str = "") -> list[CheckerRow]:
    """Compute a checker's few rows, with complete sentences. ``name``: of the checker, to describe Spark's jobs."""
    describe(rows.sparkSession, f"checker {name}".strip())
    return [completed(row.asDict(recursive=True)) for row in rows.collect()]


def judge_run(
    results: Results | None, folder: RunFolder, manifest: Mapping[str, Any], missing: Sequence[EvidenceDifference] = ()
) -> Verdict:
    """Return the verdict on one run.

    ``results``: None for a run that did not complete, whose verdict is unknown. ``missing``: evidence that differs from
    the files that the run wrote, and that the checkers did not read. Raises `UsageError` for a damaged folder.
    """
    sound = inventory.without(folder, missing)
    if results is None:
        return replace(assemble(manifest, Results(), missing=missing), applications=())
    anomalies = {scenario["anomaly"] for scenario in manifest["scenarios"]} - {None}
    unchecked = dict.fromkeys(sorted(anomalies - _NAMES), "an error: no package here offers this checker")
    results = replace(results, raised={**results.raised, **unchecked})
    protected_by, has_history = protection_of(manifest), sound.has(folder.history_path)
    events = read_afterwards(sound, PROTECTION_FILES[protected_by or GATES])
    came_back_ms = came_back_at_ms(folder.history_path) if has_history else None
    protection = ProtectionRecord(protected_by, events, came_back_ms) if protected_by or events else None
    views = consequences.application_views(read_afterwards(sound, APPLICATIONS))
    group_events = consequences.read_group_events(folder.history_path) if has_history else []
    stuck = consequences.stuck_groups(group_events, manifest["absent_brokers"])
    wrong = wrong_offsets(group_events, manifest["absent_brokers"], sound)
    results = replace(results, findings=[*results.findings, *stuck, *wrong])
    verdict = assemble(manifest, results, missing=missing, protection=protection)
    groups = consequences.group_consequences(group_events, manifest["absent_brokers"]) if group_events else {}
    findings = consequences.with_consequences(verdict.findings, views, groups)
    return replace(verdict, findings=findings, applications=views)


def store(folder: RunFolder, verdict: Verdict, results: Results | None) -> None:
    """Write ``outcomes.jsonl`` and the verdict; a former one that differs gets another name. Raises OSError."""
    content = to_json(verdict)
    if (former := folder.keep_former_verdict(content)) is not None:
        log.warning("the former verdict differs, and is kept as %s", former.name)
    folder.write_lines(folder.outcomes_path, results.outcomes if results else ())
    folder.write_json(folder.verdict_path, content)


def read_afterwards(folder: RunFolder, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the lines of a file that a run may have; none without the file. Raises `UsageError` for a damaged file."""
    path = folder.path / name
    return read_lines(path) if folder.has(path) else []


def check_without_data(spark: SparkSession, path: Path) -> None:
    """Run every checker on a run folder that does not exist: loads the classes that a check needs."""
    run_checkers(prepare(spark, [RunFolder(path)]))


def rehearse(spark: SparkSession, scratch_dir: Path) -> None:
    """Read an empty run folder: loads classes and starts Python workers while the cluster is busy elsewhere."""
    raise_if_damaged(load(spark, [RunFolder(scratch_dir / "rehearsal")]).problems)
