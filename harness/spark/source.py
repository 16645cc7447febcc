"""Segment files as Spark tables: the Python data source ``kafka-segments``.

    from harness.spark.source import register

    register(spark)
    segments = spark.read.format("kafka-segments")
    records = segments.load("/backup/broker-1")                              # a log directory: all its partitions
    batches = segments.option("table", "batches").load("/backup/broker-*/orders-0")
    records.where("topic = 'orders'").groupBy("partition").count().show()

The path is a segment file, a partition's folder, a log directory with such folders, or a glob of any of these; here,
or at ``s3a://`` or ``hdfs://`` (`harness.broker_files.storage`). Of a folder, only what a broker would load is read
(``harness.broker_files.segments.folder``). Options:

- ``table``: ``records`` (the default) or ``batches``;
- ``spark.hadoop.fs.s3a.…`` and ``spark.hadoop.dfs.namenode.http-address``: as a session has them; Spark does not tell
  Python sources what its own settings are;
- ``columns``: names between commas. Spark does not tell Python sources which columns a query needs; what is not named
  here is not made. A ``.schema("offset long, key binary")`` has the same effect.

Rows have the columns of `PLACE` and then those of ``harness.broker_files.segments.arrow``. A segment file is a Spark
partition, and comes in its own order. Comparisons of topic, partition and offset with a value spare files that hold no
such row. A file that cannot be read ends the query, with the file and the byte.
"""

from __future__ import annotations

import glob
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from harness.broker_files import storage
from harness.broker_files.segments.arrow import SCHEMAS, Table, read_table
from harness.broker_files.segments.folder import live_segments
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME: Final = "kafka-segments"
PLACE: Final = pa.schema({"topic": pa.string(), "partition": pa.int32(), "segment": pa.int64(), "file": pa.string()})
"""Of the file that a row is from: topic and partition by its folder's name (null if that is no partition's), its base
offset (null if its name is none) and its path."""

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_BASE_OFFSET = re.compile(r"(\d{20})\.log.*")
_OFFSETS = frozenset({"offset", "batch_offset", "base_offset", "last_offset"})
_LOG = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register the format with a session, and turn on the push-down of filters to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KafkaSegments)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file to read. ``end`` is the next segment's base offset; None for the last, and where no folder was given."""

    path: Path
    topic: str | None
    partition: int | None
    segment: int | None
    end: int | None = None


class KafkaSegments(DataSource):
    """What Spark makes of ``spark.read.format("kafka-segments")``: see the module."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Refuse unknown values of options with ``UsageError``."""
        super().__init__(options)
        self._table = cast("Table", _one_of(options, "table", ("records", *sorted(SCHEMAS))))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of option ``columns``, or all."""
        table_schema = _table_schema(self._table)
        chosen = self.options.get("columns")
        names = table_schema.names if chosen is None else [name.strip() for name in chosen.split(",")]
        _refuse_unknown(names, table_schema)
        return from_arrow_schema(pa.schema([table_schema.field(name) for name in names]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns."""
        path = self.options.get("path")
        if path is None:
            raise UsageError(f"{NAME} is given no path: .load(PATH)")
        table_schema = _table_schema(self._table)
        wanted = to_arrow_schema(schema)
        _refuse_unknown(wanted.names, table_schema)
        for expected in from_arrow_schema(pa.schema([table_schema.field(name) for name in wanted.names])):
            if schema[expected.name].dataType != expected.dataType:
                raise UsageError(f"column {expected.name} is of type {expected.dataType.simpleString()}")
        return _Reader(path, dict(self.options), self._table, wanted)


@dataclass
class _Reader(DataSourceReader):
    path: str
    options: Mapping[str, str]
    table: Table
    schema: pa.Schema
    filters: list[Filter] = field(default_factory=list)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep what may spare files. Spark still has to apply all: a file may hold other rows too."""
        self.filters = filters
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return the files, one each."""
        found = find_files(self.path, self.options)
        files = [file for file in found if all(_may_hold(file, one) for one in self.filters)]
        return [InputPartition(file) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one file; nothing where filters have left none."""
        file: SegmentFile | None = partition.value
        if file is None:
            return
        columns = [name for name in self.schema.names if name not in PLACE.names]
        place = _place(file)
        with file.path.open("rb", buffering=0) as opened:
            for batch in read_table(opened, self.table, columns, source=str(file.path)):
                arrays = [
                    pa.repeat(pa.scalar(place[one.name], one.type), batch.num_rows)
                    if one.name in place
                    else batch.column(one.name).cast(one.type)
                    for one in self.schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def find_files(pattern: str, conf: Mapping[str, str] | None = None) -> list[SegmentFile]:
    """Return the segment files of a path or glob, in order. Raises ``UsageError`` where there is none."""
    places = sorted(_matching(pattern, conf))
    files = [file for place in places for file in _files_of(place)]
    if not files:
        raise UsageError(f"{pattern}: no segment files, and no folders of partitions with any")
    return files


def _matching(pattern: str, conf: Mapping[str, str] | None) -> Iterable[Path]:
    """Return what there is of a path whose parts may be patterns."""
    path: Any = storage.place(pattern, conf)
    if isinstance(path, storage.RemotePath):
        return cast("Iterable[Path]", path.matches())
    return [Path(name) for name in glob.glob(str(path))]  # noqa: PTH207  (of a whole path)


def _files_of(place: Path) -> Iterator[SegmentFile]:
    if place.is_file():
        match = _BASE_OFFSET.fullmatch(place.name)
        yield SegmentFile(place, *_topic_partition(place.parent), int(match[1]) if match else None)
    elif _PARTITION_FOLDER.fullmatch(place.absolute().name):
        yield from _files_of_partition(place)
    else:
        for folder in sorted(place.iterdir()):
            if folder.is_dir() and _PARTITION_FOLDER.fullmatch(folder.name):
                yield from _files_of_partition(folder)


def _files_of_partition(folder: Path) -> Iterator[SegmentFile]:
    live = live_segments(folder)
    for name, why in live.left_out.items():
        _LOG.warning("%s/%s: %s", folder, name, why)
    bases = [segment.base_offset for segment in live.segments]
    for segment, end in zip(live.segments, [*bases[1:], None], strict=True):
        yield SegmentFile(folder / segment.log, *_topic_partition(folder), segment.base_offset, end)


def _topic_partition(folder: Path) -> tuple[str | None, int | None]:
    match = _PARTITION_FOLDER.fullmatch(folder.absolute().name)
    return (match["topic"], int(match["partition"])) if match else (None, None)


def _may_hold(file: SegmentFile, condition: Filter) -> bool:
    """Whether a file may hold a row that meets a condition; a condition on another column excludes no file."""
    match condition:
        case EqualTo((("topic" | "partition" | "segment" | "file") as name,), value):
            return bool(_place(file)[name] == value)
        case In((("topic" | "partition" | "segment" | "file") as name,), values):
            return _place(file)[name] in values
        case EqualTo((name,), value) if name in _OFFSETS:
            return _starts_by(file, value) and _ends_after(file, value)
        case LessThan((name,), value) | LessThanOrEqual((name,), value) if name in _OFFSETS:
            return _starts_by(file, value)
        case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value) if name in _OFFSETS:
            return _ends_after(file, value)
        case _:
            return True


def _starts_by(file: SegmentFile, offset: int) -> bool:
    return file.segment is None or file.segment <= offset


def _ends_after(file: SegmentFile, offset: int) -> bool:
    return file.end is None or file.end > offset


def _place(file: SegmentFile) -> dict[str, Any]:
    return {"topic": file.topic, "partition": file.partition, "segment": file.segment, "file": str(file.path)}


def _table_schema(table: Table) -> pa.Schema:
    return pa.schema([*PLACE, *SCHEMAS[table]])


def _refuse_unknown(names: Sequence[str], table_schema: pa.Schema) -> None:
    if unknown := [name for name in names if name not in table_schema.names]:
        raise UsageError(f"{NAME} has no column {', '.join(unknown)}: it has {', '.join(table_schema.names)}")


def _one_of(options: MutableMapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return an option's value, by default the first choice."""
    value = options.get(name, choices[0])
    if value not in choices:
        raise UsageError(f"option {name} is {value!r}: {' or '.join(dict.fromkeys(choices))}")
    return value
