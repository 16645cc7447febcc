"""Run folders as DataFrames: the only place where checkers touch files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.parse import ABORTS, ENTRIES, FILES, parse_aborts, parse_entries
from harness.errors import UsageError
from harness.segments.batches import CorruptLogError
from harness.segments.checkpoints import read_checkpoint
from harness.store import AFTER_REJOIN, BEFORE_RETURN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from harness.store import RunFolder

PARTITION = ["run", "topic", "partition"]
"""Columns that name a partition of a run."""
REPLICA = [*PARTITION, "broker"]
"""Columns that name one broker's replica of it."""

DISK, FETCH = "disk", "fetch"
PARSE_TASKS = 2

STATES = t.StructType(
    [
        t.StructField("run", t.StringType()),
        t.StructField("snapshot", t.StringType()),
        t.StructField("broker", t.IntegerType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("served", t.BooleanType()),
        t.StructField("log_start", t.LongType()),
        t.StructField("high_watermark", t.LongType()),
        t.StructField("last_stable_offset", t.LongType()),
        t.StructField("aborted", t.ArrayType(t.ArrayType(t.LongType()))),
        t.StructField("open", t.ArrayType(t.ArrayType(t.LongType()))),
        t.StructField("cleaner_offset", t.LongType()),
        t.StructField("directory_id", t.StringType()),
    ]
)
"""What a broker says of a replica at a snapshot. ``served``: asked over the wire; else only checkpoints tell,
and ``last_stable_offset``, ``aborted`` and ``open`` are null."""

HISTORY = t.StructType(
    [
        t.StructField("type", t.StringType()),
        t.StructField("f", t.StringType()),
        t.StructField("op", t.LongType()),
        t.StructField("time_ms", t.LongType()),
        t.StructField("process", t.StringType()),
        t.StructField("part", t.StringType()),
        t.StructField("phase", t.StringType()),
        t.StructField("transactional_id", t.StringType()),
        t.StructField("txn", t.LongType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("key", t.StringType()),
        t.StructField("tombstone", t.BooleanType()),
        t.StructField("broker", t.IntegerType()),
        t.StructField("position", t.LongType()),
        t.StructField(
            "records",
            t.ArrayType(t.StructType([t.StructField("offset", t.LongType()), t.StructField("key", t.StringType())])),
        ),
    ]
)

NOTED = t.ArrayType(
    t.StructType(
        [
            t.StructField("offset", t.LongType()),
            t.StructField("kind", t.StringType()),
            t.StructField("producer_id", t.LongType()),
        ]
    )
)
OBSERVATIONS = t.StructType(
    [
        t.StructField("time_ms", t.LongType()),
        t.StructField("broker", t.IntegerType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("high_watermark", t.LongType()),
        t.StructField("last_stable_offset", t.LongType()),
        t.StructField("log_end", t.LongType()),
        t.StructField("batches", t.LongType()),
        t.StructField("digest", t.LongType()),
        t.StructField("appeared", NOTED),
        t.StructField("removed", NOTED),
    ]
)


@dataclass(frozen=True)
class Evidence:
    """All that is known of some runs, as lazy DataFrames.

    ``entries``: ENTRIES, every replica at every snapshot, both sources. ``aborts``: ABORTS, from disk.
    ``states``: STATES. ``history``: HISTORY with ``run``. ``observations``: OBSERVATIONS with ``run``.
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


def load(spark: SparkSession, folders: Sequence[RunFolder]) -> Evidence:
    """Read run folders. Raises `UsageError` naming what is missing or cannot be read."""
    logs = list(_files(folders, {".log", ".bin"}))
    indexes = list(_files(folders, {".txnindex"}))
    return Evidence(
        entries=held(_parsed(spark, logs, parse_entries, ENTRIES)),
        aborts=held(_parsed(spark, indexes, parse_aborts, ABORTS)),
        states=held(_local(spark, [row for folder in folders for row in _states(folder)], STATES)),
        history=held(_json_lines(spark, [folder.history_path for folder in folders], HISTORY)),
        observations=held(_json_lines(spark, [folder.observations_path for folder in folders], OBSERVATIONS)),
    )


def held(rows: DataFrame) -> DataFrame:
    """Keep rows that several checkers use, in one partition.

    A run folder is small: in one partition no join needs a shuffle, and a check is a handful of tasks.
    """
    return rows.coalesce(1).localCheckpoint()


def raise_if_corrupt(evidence: Evidence) -> None:
    """Raise `UsageError` for the first file that is cut or corrupt, with file and position.

    A cut at the end of a file that a broker was appending to when it was copied or killed is normal; what
    is missing then shows as a log end behind what the broker served, see `doubts`.
    """
    corrupt = evidence.entries.where(f.col("problem").isNotNull() & ~f.col("cut")).select("problem")
    problem = corrupt.unionAll(evidence.aborts.where(f.col("problem").isNotNull()).select("problem")).first()
    if problem is not None:
        raise UsageError(f"the run folder is damaged: {problem['problem']}")


def _parsed(spark: SparkSession, files: list[tuple[Any, ...]], parse: Any, schema: t.StructType) -> DataFrame:
    if not files:
        return spark.createDataFrame([], schema)
    return _local(spark, files, FILES).repartition(PARSE_TASKS).mapInArrow(parse, schema)


def _local(spark: SparkSession, rows: list[tuple[Any, ...]], schema: t.StructType) -> DataFrame:
    """Return rows as a DataFrame by way of Arrow; a list of rows would go through Python workers."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrow = to_arrow_schema(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)


def _json_lines(spark: SparkSession, paths: list[Path], schema: t.StructType) -> DataFrame:
    """Read JSON lines files; the run is the name of the folder that each lies in."""
    for path in paths:
        _check_json_lines(path)
    there = [str(path) for path in paths if path.exists()]
    if not there:
        return spark.createDataFrame([], t.StructType([*schema.fields, t.StructField("run", t.StringType())]))
    # The name is a URI, in which url_decode would take a plus for a space.
    name = f.url_decode(f.replace(f.input_file_name(), f.lit("+"), f.lit("%2B")))
    return spark.read.schema(schema).json(there).withColumn("run", f.element_at(f.split(name, "/"), -2))


def _check_json_lines(path: Path) -> None:
    if not path.exists():
        return
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                json.loads(line)
            except ValueError as error:
                raise UsageError(f"the run folder is damaged: {path} line {number} is not JSON: {error}") from error


def _files(folders: Sequence[RunFolder], suffixes: set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield FILES rows."""
    for folder in folders:
        for source, top in ((DISK, "brokers"), (FETCH, "fetched")):
            for path in sorted((folder.path / top).glob("*/*/*/*")):
                if path.suffix in suffixes:
                    broker, snapshot, topic_partition = path.parts[-4:-1]
                    topic, _, partition = topic_partition.rpartition("-")
                    yield (folder.run_id, snapshot, source, int(broker), topic, int(partition), str(path))


def _states(folder: RunFolder) -> Iterator[tuple[Any, ...]]:
    """Yield STATES rows: of every replica that has files or was asked."""
    for held in sorted((folder.path / "brokers").glob("*/*/*/")):
        broker, snapshot, name = held.parts[-3:]
        topic, _, partition = name.rpartition("-")
        tp = (topic, int(partition))
        said = _said(folder.fetched_snapshot(int(broker), snapshot) / name / "state.json")
        checkpoints = held.parent
        yield (
            folder.run_id,
            snapshot,
            int(broker),
            *tp,
            said is not None,
            said["log_start"] if said else _checkpoint(checkpoints, "log-start-offset", tp, 0),
            said["high_watermark"] if said else _checkpoint(checkpoints, "replication-offset", tp, 0),
            said["last_stable_offset"] if said else None,
            said["aborted"] if said else None,
            said["open"] if said else None,
            _checkpoint(checkpoints, "cleaner-offset", tp, 0),
            _directory_id(checkpoints / "meta.properties"),
        )


def _said(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UsageError(f"the run folder is damaged: {path} is not JSON: {error}") from error


def _checkpoint(folder: Path, name: str, partition: tuple[str, int], default: int) -> int:
    path = folder / f"{name}-checkpoint"
    try:
        return read_checkpoint(path.read_bytes(), source=str(path)).get(partition, default)
    except FileNotFoundError:
        return default
    except CorruptLogError as error:
        raise UsageError(f"the run folder is damaged: {error}") from error


def _directory_id(path: Path) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("directory.id=")), None)
