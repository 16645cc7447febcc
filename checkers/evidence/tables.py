"""Run folders as DataFrames: the only place where checkers touch files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.copies import SIDE_READERS_OF_COPIES, entries_of_copies
from checkers.evidence.parse import READERS, Reader, read
from checkers.evidence.schemas import (
    ABORTS,
    COORDINATORS,
    ENTRIES,
    EPOCHS,
    HISTORY,
    OBSERVATIONS,
    PRODUCERS,
    SETTINGS,
    STATES,
)
from harness.brokers.segments.digest import DIGEST_MODULUS
from harness.errors import UsageError
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.spark.threads import threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.types import StructType

    from harness.brokers.copies.copies import Copies
    from harness.run_folder.store import RunFolder

PARTITION = ["run", "topic", "partition"]
"""Columns that name a partition of a run."""
REPLICA = [*PARTITION, "broker"]
"""Columns that name one broker's replica of it."""
Place: TypeAlias = tuple[str, str, int]
"""What `PARTITION` has: run, topic, partition."""

SCHEMAS = {
    "entries": ENTRIES,
    "aborts": ABORTS,
    "states": STATES,
    "history": HISTORY,
    "observations": OBSERVATIONS,
    "producers": PRODUCERS,
    "epochs": EPOCHS,
    "coordinators": COORDINATORS,
    "settings": SETTINGS,
}
"""By name of the `Evidence` field."""

PLANNERS = 2
"""Threads that plan: a JVM that has just started interprets most of what planning calls, on one core a thread."""

TASKS = {"entries": 2}
"""How many tasks read a table; one where nothing is said."""


def place_of(row: Mapping[str, Any] | Row) -> Place:
    """Return where a row belongs."""
    return row["run"], row["topic"], row["partition"]


@dataclass(frozen=True)
class Evidence:
    """All that is known of some runs, with the columns that `checkers.evidence.schemas` describes.

    ``entries``: every replica at every snapshot, both sources. ``aborts``: from disk. ``producers``, ``epochs``
    and ``coordinators``: only of copies from a cluster; a run's clients know what these would tell.
    ``settings``: only of runs.
    ``has_clients``: the history tells what clients did; else there is none, and replicas are all there is to compare.
    """

    entries: DataFrame
    aborts: DataFrame
    states: DataFrame
    history: DataFrame
    observations: DataFrame
    producers: DataFrame
    epochs: DataFrame
    coordinators: DataFrame
    settings: DataFrame
    has_clients: bool

    def at(self, snapshot: str, source: str) -> DataFrame:
        """Entries of one snapshot and source."""
        return self.entries.where((f.col("snapshot") == snapshot) & (f.col("source") == source))

    @property
    def final(self) -> DataFrame:
        """Entries after the rejoin: what is judged."""
        return self.entries.where((f.col("snapshot") == AFTER_REJOIN) & f.col("judged"))

    @property
    def before_return(self) -> DataFrame:
        """Entries just before the absent broker came back."""
        return self.entries.where((f.col("snapshot") == BEFORE_RETURN) & f.col("judged"))

    @property
    def problems(self) -> DataFrame:
        """``problem`` of every file that is cut or corrupt from some place on."""
        tables: list[DataFrame] = [getattr(self, name) for name in SCHEMAS]
        return reduce(DataFrame.unionAll, (table.where("problem IS NOT NULL").select("problem") for table in tables))

    @property
    def damaged(self) -> DataFrame:
        """REPLICA and ``problem`` of every file of a replica that is cut or corrupt from some place on."""
        tables = (self.entries, self.aborts, self.states, self.producers, self.epochs)
        return reduce(
            DataFrame.unionAll, (table.where("problem IS NOT NULL").select(*REPLICA, "problem") for table in tables)
        )


def load(spark: SparkSession, folders: Sequence[RunFolder]) -> Evidence:
    """Return what run folders hold by the time that a job runs; nothing is read yet."""
    # Workers run in another directory than whoever gave a relative path.
    found = [replace(folder, path=folder.path.absolute()) for folder in folders]
    return _evidence(spark, READERS, found)


def load_copies(spark: SparkSession, copies: Sequence[Copies]) -> Evidence:
    """Return what folders that were copied from brokers hold; each of the ``copies`` stands for a run.

    In all of them the same has to delete a key.
    """
    (tombstones,) = {one.tombstones for one in copies}
    return _evidence(spark, {**SIDE_READERS_OF_COPIES, "entries": entries_of_copies(tombstones)}, copies)


def load_side_files(spark: SparkSession, copies: Sequence[Copies]) -> Evidence:
    """Return the same without the logs themselves: its entries are empty."""
    return _evidence(spark, SIDE_READERS_OF_COPIES, copies)


def _evidence(spark: SparkSession, readers: Mapping[str, Reader], folders: Sequence[Any]) -> Evidence:
    def table(name: str) -> DataFrame:
        if name not in readers:
            return empty(spark.range(0), SCHEMAS[name])
        return _table(spark, readers[name], folders, TASKS.get(name, 1))

    with threads(spark, PLANNERS) as pool:
        tables = dict(zip(SCHEMAS, pool.map(table, SCHEMAS), strict=True))
    return Evidence(**tables, has_clients=readers is READERS)


def empty(nothing: DataFrame, schema: StructType) -> DataFrame:
    """Return a table without rows, of what has none; planning one from Python data costs more than this."""
    return nothing.select(*(f.lit(None).cast(field.dataType).alias(field.name) for field in schema))


def digest_share() -> Column:
    """Return one batch's share of its log's digest, as `harness.brokers.segments.digest.batch_digest` has it."""
    return f.col("crc") * (f.pmod(f.col("base_offset"), f.lit(DIGEST_MODULUS)) + 1)


def _table(spark: SparkSession, reader: Reader, folders: Sequence[Any], tasks: int) -> DataFrame:
    def part(shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in shares:
            for number in share.column(0).to_pylist():
                yield from read(reader, folders, number, tasks)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(part, reader.schema)
    return held(rows if tasks == 1 else rows.repartition(1))


def held(rows: DataFrame) -> DataFrame:
    """Plan rows now, and keep them once a job has computed them."""
    return in_one(rows).localCheckpoint(eager=False)


PARTITIONS = "spark.harness.partitions"
"""The setting that says over how many partitions a session deals runs; one where there is none."""


def in_one(rows: DataFrame) -> DataFrame:
    """Put the rows of a run into one partition: a run is small, and then no join needs a shuffle.

    All runs into the same one, unless the session deals them (`PARTITIONS`). Of the result of an inner or full join,
    and of a union, the planner has to be told again before it is joined once more.
    """
    partitions = _partitions(rows.sparkSession)
    # Where they are dealt like that already, the planner leaves this out.
    return rows.coalesce(1) if partitions == 1 else rows.repartition(partitions, "run")


@cache
def _partitions(session: SparkSession) -> int:
    return int(session.conf.get(PARTITIONS, "1") or 1)


def raise_if_damaged(problems: DataFrame) -> None:
    """Raise `UsageError` for the first file that is cut or corrupt, with file and position."""
    for row in problems.collect():
        raise UsageError(f"the run folder is damaged: {row['problem']}")
