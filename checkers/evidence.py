"""Run folders as DataFrames: the only place where checkers touch files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.parse import DISK, READERS, read
from harness.errors import UsageError
from harness.store import AFTER_REJOIN, BEFORE_RETURN, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

PARTITION = ["run", "topic", "partition"]
"""Columns that name a partition of a run."""
REPLICA = [*PARTITION, "broker"]
"""Columns that name one broker's replica of it."""

TASKS = {"entries": 2}
"""How many tasks read a table; one where nothing is said."""


@dataclass(frozen=True)
class Evidence:
    """All that is known of some runs, with the columns that `checkers.schemas` describes.

    ``entries``: every replica at every snapshot, both sources. ``aborts``: from disk.
    """

    entries: DataFrame
    aborts: DataFrame
    states: DataFrame
    history: DataFrame
    observations: DataFrame

    def at(self, snapshot: str, source: str = DISK) -> DataFrame:
        """Entries of one snapshot and source."""
        return self.entries.where((f.col("snapshot") == snapshot) & (f.col("source") == source))

    @property
    def final(self) -> DataFrame:
        """Entries after the rejoin, from disk: what is judged."""
        return self.at(AFTER_REJOIN)

    @property
    def before_return(self) -> DataFrame:
        """Entries just before the absent broker came back, from disk."""
        return self.at(BEFORE_RETURN)

    @property
    def problems(self) -> DataFrame:
        """``problem`` of every file that is cut or corrupt from some place on."""
        tables = (self.entries, self.aborts, self.states, self.history, self.observations)
        return reduce(DataFrame.unionAll, (table.where("problem IS NOT NULL").select("problem") for table in tables))


def load(spark: SparkSession, folders: Sequence[RunFolder]) -> Evidence:
    """Return what run folders hold by the time that a job runs; nothing is read yet."""
    # Workers run in another directory than whoever gave a relative path.
    found = [RunFolder(folder.path.absolute()) for folder in folders]
    return Evidence(**{name: _table(spark, name, found) for name in READERS})


def _table(spark: SparkSession, name: str, folders: Sequence[RunFolder]) -> DataFrame:
    tasks = TASKS.get(name, 1)

    def part(shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in shares:
            for number in share.column(0).to_pylist():
                yield from read(READERS[name], folders, number, tasks)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(part, READERS[name].schema)
    return held(rows if tasks == 1 else rows.repartition(1))


def held(rows: DataFrame) -> DataFrame:
    """Plan rows now, and keep them once a job has computed them."""
    return in_one(rows).localCheckpoint(eager=False)


def in_one(rows: DataFrame) -> DataFrame:
    """Put rows into one partition: a run folder is small, and then no join needs a shuffle.

    Of the result of an inner or full join, and of a union, the planner has to be told again before it is
    joined once more.
    """
    return rows.coalesce(1)


def raise_if_damaged(problems: DataFrame) -> None:
    """Raise `UsageError` for the first file that is cut or corrupt, with file and position."""
    for row in problems.collect():
        raise UsageError(f"the run folder is damaged: {row['problem']}")
