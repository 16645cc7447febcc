"""Random runs by the thousand, one Spark job after another: statistics, and the smallest schedule of each finding.

A run is simulated where its rows are checked: a task takes numbers, plays the schedule of each, and returns a row for
each run with all its tables. The tables are partitioned over the cluster by run, so no checker has to shuffle them
again. Real runs have the same checkers.

A run is *exposed* where a broker missed a record that the others removed, or would have, by the facts that real runs
earn ``clean`` with (`harness.judge.earned.earn`), or where there was any finding. Checkers judge by rows, the model by
its own state (`harness.models.log.invariants`): where they differ, one of the two is wrong, and the other results do
not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.anomalies import FINDERS
from checkers.consistency.doubts import CONTRADICTION
from checkers.evidence.schemas import INT, TEXT
from checkers.evidence.tables import PARTITIONS, SCHEMAS, Evidence, checkpointed, empty
from checkers.replay.judged import judge
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.check import CHECKERS, THREADS, each
from harness.judge.earned import earn
from harness.judge.guarantees import CHECKER
from harness.judge.sessions import CHECKS
from harness.judge.verdict import decide
from harness.model_checking.explore.random_schedules import RandomSchedule, draw, smallest
from harness.model_checking.explore.recorder import record_run
from harness.models.log.invariants import LOST_VALUE
from harness.models.world.groups import AT_RELOAD
from harness.models.world.world import ABSENT, ADDED, Rules
from harness.run_folder.store import new_run_id
from harness.spark.launch import MANY_RUNS
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TABLES: Final = ("entries", "aborts", "states", "history", "observations", "settings")
"""The fields of `Evidence` that a simulated run fills."""
ORACLE: Final = "oracle"
"""The table of anomalies by the model's state (`harness.models.log.invariants`), next to the tables of checkers."""
CONSEQUENCES: Final = "consequences"
"""The table of consequences for groups by the model's state (`harness.models.world.groups`)."""
RUNS_AT_ONCE: Final = 64
"""The number of runs in an Arrow batch."""
_NAMES: Final = t.StructType([t.StructField("broker", INT), t.StructField("anomaly", TEXT)])
_COLUMNS: Final = {
    **{name: t.StructType([it for it in SCHEMAS[name] if it.name not in {"run", "problem"}]) for name in TABLES},
    ORACLE: _NAMES,
    CONSEQUENCES: _NAMES,
}
ROW: Final = t.StructType(
    [t.StructField("run", TEXT), *(t.StructField(name, t.ArrayType(columns)) for name, columns in _COLUMNS.items())]
)
"""A run with all its tables; its name is its number."""
_ARROW: Final = to_arrow_schema(ROW)


@dataclass(frozen=True)
class CheckerResults:
    """Rows of the checkers for some runs, by checker, with the column ``run``; exceptions by checker."""

    rows: dict[str, list[dict[str, Any]]]
    raised: dict[str, str]


def partitioned_session(session: SparkSession) -> SparkSession:
    """Return a session on the same Spark that partitions runs over all its cores."""
    partitioned = session.newSession()
    for name in (PARTITIONS, "spark.sql.shuffle.partitions"):
        partitioned.conf.set(name, str(session.sparkContext.defaultParallelism))
    # Tables that are partitioned by run need no shuffle for a join by run and further columns.
    partitioned.conf.set("spark.sql.requireAllClusterKeysForCoPartition", "false")
    return partitioned


def check_runs(session: SparkSession, numbers: range, drawn: Callable[[int], RandomSchedule]) -> CheckerResults:
    """Simulate the runs of some numbers, and check them all. ``drawn`` is called where they are simulated."""
    evidence, by_state = simulated(session, numbers, drawn)
    judged = judge(evidence)
    tables, unplanned = each(CHECKERS, lambda name: CHECKERS[name](judged))
    tables |= by_state
    if CHECKER in tables:
        # Every replica has some guarantees that hold.
        tables[CHECKER] = tables[CHECKER].where("violated > 0")
    with ThreadPoolExecutor(THREADS) as pool:
        # By Arrow: single rows would keep the driver busier than the cluster.
        rows, raised = each(tables, lambda name: tables[name].toArrow().to_pylist(), using=pool.map)
    return CheckerResults(rows, {**unplanned, **raised})


def simulated(
    session: SparkSession, numbers: range, drawn: Callable[[int], RandomSchedule]
) -> tuple[Evidence, dict[str, DataFrame]]:
    """Return the evidence of the runs of some numbers, and `ORACLE` and `CONSEQUENCES`: run, broker, anomaly.

    The simulation is lazy.
    """

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers_of_batch = batch.column(0).to_pylist()
            for at in range(0, len(numbers_of_batch), RUNS_AT_ONCE):
                yield rows_of(numbers_of_batch[at : at + RUNS_AT_ONCE], drawn)

    tasks = session.sparkContext.defaultParallelism
    runs = checkpointed(session.range(numbers.start, numbers.stop, 1, tasks).mapInArrow(part, ROW))
    tables = {
        name: checkpointed(runs.select("run", f.inline(name)).withColumn("problem", f.lit(None).cast(TEXT)))
        for name in TABLES
    }
    nothing = runs.where("false")
    others = {name: empty(nothing, schema) for name, schema in SCHEMAS.items() if name not in tables}
    return Evidence(**tables, **others, has_clients=True), {
        name: runs.select("run", f.inline(name)) for name in (ORACLE, CONSEQUENCES)
    }


def rows_of(numbers: Sequence[int], drawn: Callable[[int], RandomSchedule]) -> pa.RecordBatch:
    """Simulate some runs, and return a row of `ROW` each."""
    runs = [record_run(schedule.rules, schedule.steps) for schedule in map(drawn, numbers)]
    tables: dict[str, list[Any]] = {name: [getattr(run, name) for run in runs] for name in TABLES}
    tables[ORACLE] = [run.world.violations() for run in runs]
    tables[CONSEQUENCES] = [run.world.consequences() for run in runs]
    columns: list[Any] = [pa.array(map(str, numbers), pa.string())]
    columns += [_lists(tables[field.name], field.type) for field in list(_ARROW)[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _lists(tables: Sequence[Sequence[tuple[Any, ...]]], kind: pa.ListType) -> pa.ListArray:
    """Return a list of structs for each table, made column by column: row by row takes several times as long."""
    ends, flat = [0], list[tuple[Any, ...]]()
    for rows in tables:
        flat += rows
        ends.append(len(flat))
    fields = list(kind.value_type)
    columns = zip(*flat, strict=True) if flat else [()] * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type=kind)


RUNS_A_CORE: Final = 1000
"""Runs of a job for each core: with fewer, planning takes longer than computing; more would fill its memory."""
SHRUNK: Final = 8
"""The number of runs with a finding that are shrunk to find its smallest schedule."""
SeedsByName: TypeAlias = "dict[str, list[int]]"
"""Seeds of runs, by the name of an anomaly or a consequence."""
Rows: TypeAlias = "Iterable[dict[str, Any]]"
Places: TypeAlias = "set[tuple[str, Any, str]]"
"""Run, broker, and the name of a finding or a reason."""
_CRITICAL: Final = ("run", "kind", "payload_offset", "critical_offset")


@dataclass
class RunStatistics:
    """Counts of runs. ``amiss``: contradictions that forbid a verdict, with examples.

    ``seeds_by_consequence``: for groups, by the model's state (`harness.models.world.groups`). Each has an anomaly of
    that replica, unless every replica gives the same answer.
    """

    runs: int = 0
    exposed: int = 0
    seeds_by_anomaly: SeedsByName = field(default_factory=lambda: defaultdict(list))
    seeds_by_consequence: SeedsByName = field(default_factory=lambda: defaultdict(list))
    amiss: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def verdict(self) -> str:
        """Clean only where runs were exposed; unknown where the judges differ, whatever the findings."""
        findings = [] if self.amiss else [*self.seeds_by_anomaly, *self.seeds_by_consequence]
        return decide(findings, list(self.amiss), "runs were exposed" if self.exposed else None)[0]

    def add(self, runs: int, results: CheckerResults) -> None:
        """Count the runs of one job."""
        findings = found_by_checkers(results)
        oracle, consequences = (_places(results.rows.get(table, []), "anomaly") for table in (ORACLE, CONSEQUENCES))
        runs_with_findings = {run for run, *_ in findings}
        diverged = {(run, broker) for run, broker, _ in findings}
        self.runs += runs
        self.exposed += len(runs_with_findings | set(_exposed(results.rows.get("exposure", []))))
        for seeds_by_name, places in (
            (self.seeds_by_anomaly, findings & oracle),
            (self.seeds_by_consequence, consequences),
        ):
            for name in sorted({name for *_, name in places}):
                seeds_by_name[name] += sorted({int(run) for run, _, other in places if other == name})
        lone = {
            (run, broker, name)
            for run, broker, name in consequences
            if (run, broker) not in diverged and not name.endswith(AT_RELOAD)
        }
        broken = [row for row in results.rows.get(CHECKER, []) if row["run"] not in runs_with_findings]
        doubts = [row for row in results.rows.get("doubts", []) if row["kind"] == CONTRADICTION]
        for kind, wrong in {
            "consequences for groups without an anomaly": lone,
            "checkers alone find": findings - oracle,
            "the model's state alone shows": oracle - findings,
            "contradictions": _places(doubts, "reason"),
            "guarantees broken without an anomaly": _places(broken, "guarantee"),
        }.items():
            for run, broker, text in sorted(wrong, key=lambda place: (int(place[0]), str(place[1]), place[2])):
                self.amiss[kind].append(f"seed {run}, broker {broker}: {text}")
        for name, error in results.raised.items():
            self.amiss["checkers that raised"].append(f"{name}: {error}")


def found_by_checkers(results: CheckerResults) -> Places:
    """Return run, broker and anomaly; a doubt has no anomaly name, and stands for the model's `LOST_VALUE`."""
    named = _places((row for name in FINDERS for row in results.rows.get(name, [])), "anomaly")
    doubts = [row for row in results.rows.get("doubts", []) if row["kind"] != CONTRADICTION]
    return named | {(row["run"], row["broker"], LOST_VALUE) for row in doubts}


def _places(rows: Rows, column: str) -> Places:
    return {(row["run"], row["broker"], row[column]) for row in rows}


def _exposed(facts: Rows) -> Iterator[str]:
    """Yield the runs in which any critical record earns ``clean``."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(-1 if row[name] is None else row[name] for name in _CRITICAL)

    for (run, kind, *_), group in groupby(sorted(facts, key=place), key=place):
        rows = list(group)
        brokers = [row["broker"] for row in rows]
        scenario = {"replicas": {str(rows[0]["partition"]): brokers}, "critical": [kind]}
        if earn(scenario, rows, [], absent=[ADDED if ADDED in brokers else ABSENT])[0]:
            yield run


@dataclass(frozen=True)
class SweepResult:
    """The statistics of the runs, and the smallest schedule of each finding and of each consequence by name."""

    statistics: RunStatistics
    smallest: Mapping[str, RandomSchedule]


def explore_random_runs(
    rules: Rules, seeds: range, spark: SparkOptions, on_progress: Callable[[RunStatistics], None]
) -> SweepResult:
    """Sweep in a separate Spark session. Raises as `session_of` does."""
    with (
        Workspace(f"explore-{new_run_id()}", Path.cwd()) as workspace,
        session_of(workspace, find_java(), spark, [], CHECKS, settings=MANY_RUNS, outlives_jobs=True) as session,
    ):
        return sweep(session, rules, seeds, on_progress)


def sweep(
    session: SparkSession, rules: Rules, seeds: range, on_progress: Callable[[RunStatistics], None]
) -> SweepResult:
    """Simulate and check the runs of all seeds, one job after another; calls ``on_progress`` after each."""
    statistics, size = RunStatistics(), RUNS_A_CORE * session.sparkContext.defaultParallelism
    session = partitioned_session(session)
    for first in range(seeds.start, seeds.stop, size):
        numbers = range(first, min(first + size, seeds.stop))
        statistics.add(len(numbers), check_runs(session, numbers, partial(draw, rules=rules)))
        on_progress(statistics)
    found = {**statistics.seeds_by_anomaly, **statistics.seeds_by_consequence}
    smallest_by_name = {name: smallest(name, some[:SHRUNK], rules) for name, some in sorted(found.items())}
    # The smallest schedules were found by the model's state alone: checkers judge them, too.
    names = sorted(statistics.seeds_by_anomaly)
    schedules = [smallest_by_name[name] for name in names]
    if names:
        confirmed = found_by_checkers(check_runs(session, range(len(names)), schedules.__getitem__))
        for number, name in enumerate(names):
            if not any((run, anomaly) == (str(number), name) for run, _, anomaly in confirmed):
                statistics.amiss["smallest schedules that checkers find nothing in"].append(
                    f"{name}: {'; '.join(map(str, schedules[number].steps))}"
                )
    return SweepResult(statistics, smallest_by_name)
