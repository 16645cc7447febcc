"""Many random runs in one Spark job: each is simulated where its rows are checked, and all are checked at once.

A task takes numbers, plays the schedule of each, and returns a row for each run with all its tables. The tables are
partitioned over the cluster by run, so no checker has to shuffle them again; the results are the findings. Real runs
have the same checkers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import INT, SCHEMAS, TEXT
from checkers.evidence.tables import PARTITIONS, Evidence, checkpointed, empty
from checkers.replay.judged import judge
from harness.judge.check import CHECKERS, THREADS, each
from harness.judge.guarantees import CHECKER
from harness.model_checking.explore.recorder import record_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from harness.model_checking.explore.random_schedules import RandomSchedule

TABLES: Final = ("entries", "aborts", "states", "history", "observations", "settings")
"""The fields of `Evidence` that a simulated run fills."""
ORACLE: Final = "oracle"
"""The table of anomalies by the model's state (`harness.models.log.invariants`), next to the tables of checkers."""
CONSEQUENCES: Final = "consequences"
"""The table of consequences for groups by the model's state (`harness.models.world.groups`)."""
RUNS_AT_ONCE: Final = 64
"""Runs in an Arrow batch."""
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
