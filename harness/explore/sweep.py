"""Many random runs in one Spark job: each is simulated where its rows are checked, and all are checked at once.

A task takes numbers, plays the schedule of each, and gives a row a run with all its tables. These are dealt over the
cluster by run, so that no checker has to move them again; what comes back is what was found. The checkers are those of
real runs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import INT, TEXT
from checkers.evidence.tables import PARTITIONS, SCHEMAS, Evidence, checkpointed, empty
from checkers.replay.judged import judge
from harness.explore.witness import watch
from harness.judge.check import CHECKERS, THREADS, each
from harness.judge.guarantees import CHECKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from harness.explore.chance import Drawn

TABLES: Final = ("entries", "aborts", "states", "history", "observations", "settings")
"""The fields of `Evidence` that a simulated run fills."""
ORACLE: Final = "oracle"
"""What the state of a run says by itself (`models.invariants`): a table beside the checkers'."""
RUNS_AT_ONCE: Final = 64
"""How many runs a batch of Arrow holds."""


def _columns(name: str) -> t.StructType:
    return t.StructType([field for field in SCHEMAS[name] if field.name not in {"run", "problem"}])


ROW: Final = t.StructType(
    [
        t.StructField("run", TEXT),
        *(t.StructField(name, t.ArrayType(_columns(name))) for name in TABLES),
        t.StructField(
            ORACLE, t.ArrayType(t.StructType([t.StructField("broker", INT), t.StructField("anomaly", TEXT)]))
        ),
    ]
)
"""A run with all its tables; it is called by its number."""
_ARROW: Final = to_arrow_schema(ROW)


@dataclass(frozen=True)
class Told:
    """What checkers said of some runs, by checker and as rows with the column ``run``; what they raised, by checker."""

    rows: dict[str, list[dict[str, Any]]]
    raised: dict[str, str]


def dealing(session: SparkSession) -> SparkSession:
    """Return a session on the same Spark that deals runs over all its cores."""
    dealt = session.newSession()
    partitions = str(session.sparkContext.defaultParallelism)
    for name, value in (
        (PARTITIONS, partitions),
        ("spark.sql.shuffle.partitions", partitions),
        # What is dealt by run need not be moved to be joined by run and more.
        ("spark.sql.requireAllClusterKeysForCoPartition", "false"),
    ):
        dealt.conf.set(name, value)
    return dealt


def told(session: SparkSession, numbers: range, drawn: Callable[[int], Drawn]) -> Told:
    """Simulate the runs of some numbers, and check them all. ``drawn`` is called where they are simulated."""
    evidence, oracle = simulated(session, numbers, drawn)
    judged = judge(evidence)
    tables, unplanned = each(CHECKERS, lambda name: _wanted(name, CHECKERS[name](judged)))
    tables[ORACLE] = oracle
    with ThreadPoolExecutor(THREADS) as pool:
        # By Arrow: rows one by one would keep the driver busier than the cluster.
        rows, raised = each(tables, lambda name: tables[name].toArrow().to_pylist(), using=pool.map)
    return Told(rows, {**unplanned, **raised})


def _wanted(name: str, rows: DataFrame) -> DataFrame:
    """Leave out guarantees that hold: there are some of each replica."""
    return rows.where("violated > 0") if name == CHECKER else rows


def simulated(session: SparkSession, numbers: range, drawn: Callable[[int], Drawn]) -> tuple[Evidence, DataFrame]:
    """Return what is known of the runs of some numbers, and what their own state says is wrong: run, broker, anomaly.

    Nothing is simulated yet.
    """

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            mine = batch.column(0).to_pylist()
            for at in range(0, len(mine), RUNS_AT_ONCE):
                yield rows_of(mine[at : at + RUNS_AT_ONCE], drawn)

    tasks = session.sparkContext.defaultParallelism
    runs = checkpointed(session.range(numbers.start, numbers.stop, 1, tasks).mapInArrow(part, ROW))
    tables = {
        name: checkpointed(runs.select("run", f.inline(name)).withColumn("problem", f.lit(None).cast(TEXT)))
        for name in TABLES
    }
    nothing = runs.where("false")
    others = {name: empty(nothing, schema) for name, schema in SCHEMAS.items() if name not in tables}
    return Evidence(**tables, **others, has_clients=True), runs.select("run", f.inline(ORACLE))


def rows_of(numbers: Sequence[int], drawn: Callable[[int], Drawn]) -> pa.RecordBatch:
    """Simulate some runs, and return a row of `ROW` each."""
    runs = [watch(one.rules, one.steps) for one in map(drawn, numbers)]
    tables: dict[str, list[Any]] = {name: [getattr(run, name) for run in runs] for name in TABLES}
    tables[ORACLE] = [run.world.violations() for run in runs]
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
