"""Run folders and copies as DataFrames. Only `checkers.reduction` reads files differently, for large segments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from checkers.evidence.copies import READERS_OF_COPIES, SIDE_READERS_OF_COPIES
from checkers.evidence.parse import READERS, TableReader, read
from harness.broker_files.segments.batches import DIGEST_MODULUS
from harness.errors import UsageError
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN, RunFolder
from harness.spark.jobs import threads

if TYPE_CHECKING:
    from harness.broker_files.copies.copies import Copies

PARTITION = ["topic", "partition", "run"]
"""Columns that identify a partition of a run.

Spark sorts by these columns for joins, windows and groups. The column with the most values comes first, after an
offset, a key or a producer: rows that differ there are not compared further.
"""
REPLICA = ["broker", *PARTITION]
"""Columns that identify a replica of a partition."""
RunPartition: TypeAlias = tuple[str, str, int]
"""The values of `PLACE`."""
PLACE = ("run", "topic", "partition")
"""The columns of `PARTITION` in the order in which they are written."""
REPLICA_PLACE = (*PLACE, "broker")
UNBOUNDED = 2**63 - 1
"""An offset that no log reaches."""

SCHEMAS = {name: reader.schema for name, reader in {**READERS, **READERS_OF_COPIES}.items()}
"""Schemas by field of `Evidence`."""

PLANNERS = 2
"""Threads that plan: a new JVM interprets most of the code that planning calls, and each thread uses one core."""


def place_of(row: Mapping[str, Any] | Row) -> RunPartition:
    """Return the partition of a row."""
    return row["run"], row["topic"], row["partition"]


@dataclass(frozen=True)
class Evidence:
    """All evidence of some runs, with the columns that `checkers.evidence.schemas` describes.

    ``entries``: every replica at every snapshot, both sources. ``aborts``: from disk. ``producers``, ``epochs``
    and ``coordinators``: only for copies from a cluster. ``history``, ``observations`` and ``settings``: only for runs.
    ``has_clients``: whether there is a history of client ops; without it, only replicas can be compared.
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

    @cached_property
    def final(self) -> DataFrame:
        """Entries after the rejoin, which are judged."""
        return self.entries.where((f.col("snapshot") == AFTER_REJOIN) & f.col("judged"))

    @cached_property
    def before_return(self) -> DataFrame:
        """Entries just before the return of the absent broker."""
        return self.entries.where((f.col("snapshot") == BEFORE_RETURN) & f.col("judged"))

    @cached_property
    def appeared(self) -> DataFrame:
        """REPLICA, time_ms, offset, kind, producer_id: each record and marker that the observer saw appear."""
        entries = self.observations.select(*REPLICA, "time_ms", f.explode("appeared").alias("seen"))
        return entries.select(*REPLICA, "time_ms", "seen.*")

    @property
    def problems(self) -> DataFrame:
        """``problem`` of every file of a run that is cut or corrupt from some position on."""
        return self._problems(READERS, "problem")

    @property
    def damaged(self) -> DataFrame:
        """REPLICA and ``problem`` of every file of a replica that is cut or corrupt from some position on."""
        return self._problems(("entries", "aborts", "states", "producers", "epochs"), *REPLICA, "problem")

    def _problems(self, names: Iterable[str], *columns: str) -> DataFrame:
        tables: Iterator[DataFrame] = (getattr(self, name).select(*columns) for name in names)
        return reduce(DataFrame.unionAll, tables).where("problem IS NOT NULL")


def load(spark: SparkSession, folders: Sequence[RunFolder]) -> Evidence:
    """Return the evidence of run folders; a file is read only when a job runs."""
    # Workers run in another directory than the caller who passed a relative path.
    return _evidence(spark, READERS, [replace(folder, path=folder.path.absolute()) for folder in folders])


def load_copies(spark: SparkSession, copies: Sequence["Copies"], *, with_logs: bool = True) -> Evidence:
    """Return the evidence of copied folders, each of which stands for a run; without logs, its entries are empty."""
    return _evidence(spark, READERS_OF_COPIES if with_logs else SIDE_READERS_OF_COPIES, copies)


def _evidence(spark: SparkSession, readers: Mapping[str, TableReader], folders: Sequence[Any]) -> Evidence:
    is_answered = bool(folders) and all(getattr(folder, "served", False) for folder in folders)

    def table(name: str) -> DataFrame:
        if name not in readers:
            return empty(spark.range(0, 0, 1, 1), SCHEMAS[name])
        if is_answered and name != "entries":
            # The answers of brokers are on the driver's host only.
            rows = pa.Table.from_batches(read(readers[name], folders, 0, 1), to_arrow_schema(readers[name].schema))
            return checkpointed(spark.createDataFrame(rows, readers[name].schema).repartition(1))
        return _table(spark, readers[name], folders, 2 if name == "entries" else 1)

    with threads(spark, PLANNERS) as pool:
        tables = dict(zip(SCHEMAS, pool.map(table, SCHEMAS), strict=True))
    return Evidence(**tables, has_clients=readers is READERS)


def empty(no_rows: DataFrame, schema: StructType) -> DataFrame:
    """Return an empty table, derived from a DataFrame without rows: planning a table from Python data takes longer."""
    return no_rows.select(*(f.lit(None).cast(field.dataType).alias(field.name) for field in schema))


def at_first(offset: str, *names: str) -> list[Column]:
    """Return aggregates with their columns' names: the lowest offset, and the columns ``names`` of that row."""
    return [f.min(offset).alias(offset), *(f.min_by(name, offset).alias(name) for name in names)]


def digest_share() -> Column:
    """Return one batch's share of its log's digest, by `harness.broker_files.segments.batches.batch_digest`."""
    return f.col("crc") * (f.pmod(f.col("base_offset"), f.lit(DIGEST_MODULUS)) + 1)


def _table(spark: SparkSession, reader: TableReader, folders: Sequence[Any], tasks: int) -> DataFrame:
    def part(shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in shares:
            for number in share.column(0).to_pylist():
                yield from read(reader, folders, number, tasks)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(part, reader.schema)
    return checkpointed(rows if tasks == 1 else rows.repartition(1))


def checkpointed(rows: DataFrame) -> DataFrame:
    """Plan rows now, and store them when the first job computes them (a lazy local checkpoint)."""
    return colocated(rows).localCheckpoint(eager=False)


SHUFFLES = "spark.sql.shuffle.partitions"
PARTITIONS = "spark.harness.partitions"
"""The Spark setting for the number of partitions over which a session distributes runs; 1 by default."""


def colocated(rows: DataFrame) -> DataFrame:
    """Put all rows of a run into one Spark partition: a run is small, and joins then need no shuffle.

    All runs share that partition, unless the session distributes them (`PARTITIONS`). Call this function again on the
    result of an inner join, a full join or a union before the next join. Changes nothing in `spread_over`.
    """
    partitions = _partitions(rows.sparkSession)
    if partitions == SPREAD:
        return rows
    # The planner omits this repartition if the rows are distributed by run already.
    return rows.coalesce(1) if partitions == 1 else rows.repartition(partitions, "run")


SPREAD = 0
_partitions_of: dict[SparkSession, int] = {}


def _partitions(session: SparkSession) -> int:
    if session not in _partitions_of:
        _partitions_of[session] = int(session.conf.get(PARTITIONS, "1") or 1)
    return _partitions_of[session]


@contextmanager
def spread_over(session: SparkSession, tasks: int) -> Iterator[None]:
    """Plan for runs of any size: every shuffle has so many tasks, and no run is put into one partition."""
    shuffles, partitions = session.conf.get(SHUFFLES) or "1", _partitions(session)
    session.conf.set(SHUFFLES, tasks)
    _partitions_of[session] = SPREAD
    try:
        yield
    finally:
        session.conf.set(SHUFFLES, shuffles)
        _partitions_of[session] = partitions


def raise_if_damaged(problems: DataFrame) -> None:
    """Raise `UsageError` for the first file that is cut or corrupt, with file and position."""
    for row in problems.collect():
        raise UsageError(f"the run folder is damaged: {row['problem']}")
