"""Many random runs in one Spark job: each is simulated where its rows are checked, and all are checked at once.

A task takes seeds, plays the schedule of each, and gives a row a run with all its tables. These are dealt over the
cluster by run, so that no checker has to move them again; what comes back is what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence import SCHEMAS, Evidence, held
from checkers.schemas import INT, TEXT
from harness.explore.chance import draw
from harness.explore.witness import watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from harness.explore.chance import Odds

TABLES: Final = ("entries", "aborts", "states", "history", "observations", "settings")
"""The fields of `Evidence` that a simulated run fills."""
ORACLE: Final = t.StructType([t.StructField("broker", INT), t.StructField("name", TEXT)])
"""What `models.wrongs` says of a run."""
RUNS_AT_ONCE: Final = 64
"""How many runs a batch of Arrow holds."""


def _columns(name: str) -> t.StructType:
    return t.StructType([field for field in SCHEMAS[name] if field.name not in {"run", "problem"}])


ROW: Final = t.StructType(
    [
        t.StructField("run", TEXT),
        *(t.StructField(name, t.ArrayType(_columns(name))) for name in TABLES),
        t.StructField("oracle", t.ArrayType(ORACLE)),
    ]
)
"""A run with all its tables."""


def simulated(spark: SparkSession, seeds: range, odds: Odds, tasks: int) -> tuple[Evidence, DataFrame]:
    """Return what is known of the runs of some seeds (column ``run``), and what the state itself says is wrong.

    The second has ``run``, broker, name (see `models.wrongs`). Nothing is simulated yet. ``tasks``: over how many the
    seeds are dealt.
    """

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            for at in range(0, len(numbers), RUNS_AT_ONCE):
                yield rows_of(numbers[at : at + RUNS_AT_ONCE], odds)

    runs = held(spark.range(seeds.start, seeds.stop, 1, tasks).mapInArrow(part, ROW))
    tables = {
        name: held(runs.select("run", f.inline(name)).withColumn("problem", f.lit(None).cast(TEXT))) for name in TABLES
    }
    empty = {name: spark.createDataFrame([], SCHEMAS[name]) for name in SCHEMAS.keys() - set(TABLES)}
    return Evidence(**tables, **empty, has_clients=True), runs.select("run", f.inline("oracle"))


def rows_of(seeds: Sequence[int], odds: Odds) -> pa.RecordBatch:
    """Simulate some seeds, and return a row of `ROW` each."""
    runs = []
    for seed in seeds:
        drawn = draw(seed, odds)
        runs.append(watch(drawn.rules, drawn.steps))
    tables = {name: [getattr(run, name) for run in runs] for name in TABLES}
    tables["oracle"] = [run.world.wrongs() for run in runs]
    schema = to_arrow_schema(ROW)
    columns: list[Any] = [pa.array(map(str, seeds), pa.string())]
    columns += [_lists(tables[field.name], field.type) for field in list(schema)[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lists(tables: Sequence[Sequence[tuple[Any, ...]]], kind: pa.ListType) -> pa.ListArray:
    """Return a list of structs for each table, column by column: much faster than row by row."""
    ends, flat = [0], []
    for rows in tables:
        flat += rows
        ends.append(len(flat))
    fields = list(kind.value_type)
    columns = zip(*flat, strict=True) if flat else [()] * len(fields)
    structs = pa.StructArray.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)], fields=fields
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type=kind)
