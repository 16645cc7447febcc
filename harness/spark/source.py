"""Segment files as Spark tables: the Python data source ``kafka-segments``.

    register(spark)  # of harness.spark.source
    segments = spark.read.format("kafka-segments")
    records = segments.load("/backup/broker-1")                              # a log directory: all its partitions
    batches = segments.option("table", "batches").load("/backup/broker-*/orders-0")

The path is a segment file, a partition's folder, a log directory with such folders, or a glob of any of these; here,
or at ``s3a://`` or ``hdfs://`` (`harness.broker_files.storage`). Of a folder, only the files that a broker would load
are read (``harness.broker_files.segments.folder``). Options:

- ``table``: ``records`` (the default) or ``batches``;
- ``spark.hadoop.fs.s3a.…`` and ``spark.hadoop.dfs.namenode.http-address``: as settings, which Spark does not pass on;
- ``columns``: names between commas; other columns are not read, of which Spark does not tell Python sources. A
  ``.schema("offset long, key binary")`` has the same effect.

The columns of `PLACE` come first, then the columns of ``harness.broker_files.segments.arrow``. A segment file is a
Spark partition. Comparisons of topic, partition and offset with a value skip files without such a row. A file that
cannot be read ends the query, with the file and the byte.
"""

import glob
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from harness.broker_files import storage
from harness.broker_files.segments.arrow import SCHEMAS, Table, read_table
from harness.broker_files.segments.blocks import Readable
from harness.broker_files.segments.folder import live_segments
from harness.errors import UsageError

NAME: Final = "kafka-segments"
PLACE: Final = pa.schema({"topic": pa.string(), "partition": pa.int32(), "segment": pa.int64(), "file": pa.string()})
"""The columns of a row's file: topic and partition by the name of its folder (null if it is not a partition's folder),
its base offset (null if the name is not an offset) and its path."""

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_BASE_OFFSET = re.compile(r"(\d{20})\.log.*")
_OFFSETS = frozenset({"offset", "batch_offset", "base_offset", "last_offset"})
_BEYOND: Final = 2**63
"""An offset beyond every offset."""
_LOG = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register the format with a session, and turn on the push-down of filters to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KafkaSegments)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file to read. ``end`` is the next segment's base offset; None for the last, and for a path without a folder."""

    path: Path
    topic: str | None
    partition: int | None
    segment: int | None
    end: int | None = None

    @property
    def place(self) -> dict[str, Any]:
        """The values of `PLACE`."""
        return {"topic": self.topic, "partition": self.partition, "segment": self.segment, "file": str(self.path)}

    def may_have(self, condition: ds.Filter) -> bool:
        """Return whether a row may meet a condition; a condition on another column excludes no file."""
        first = -1 if self.segment is None else self.segment
        end = _BEYOND if self.end is None else self.end
        match condition:
            case ds.EqualTo((name,), value) if name in PLACE.names:
                return bool(self.place[name] == value)
            case ds.In((name,), values) if name in PLACE.names:
                return self.place[name] in values
            case ds.EqualTo((name,), value) if name in _OFFSETS:
                return bool(first <= value < end)
            case ds.LessThan((name,), value) | ds.LessThanOrEqual((name,), value) if name in _OFFSETS:
                return bool(first <= value)
            case ds.GreaterThan((name,), value) | ds.GreaterThanOrEqual((name,), value) if name in _OFFSETS:
                return bool(value < end)
            case _:
                return True


@dataclass(frozen=True)
class SourceTable:
    """The table of a data source: ``place`` is the schema of the columns that are the same for a whole file."""

    source: str
    table: Table
    place: pa.Schema

    @classmethod
    def of(cls, source: str, options: Mapping[str, str], place: pa.Schema) -> Self:
        """Return the table that the option ``table`` names. Raises ``UsageError`` for an unknown table."""
        tables = ("records", *sorted(SCHEMAS))
        if (table := options.get("table", tables[0])) not in tables:
            raise UsageError(f"option table is {table!r}: {' or '.join(dict.fromkeys(tables))}")
        return cls(source, cast("Table", table), place)

    @property
    def columns(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.place, *SCHEMAS[self.table]])

    def chosen(self, options: Mapping[str, str]) -> StructType:
        """Return the columns of option ``columns``, or all. Raises ``UsageError`` for unknown columns."""
        names = options["columns"].split(",") if "columns" in options else self.columns.names
        return self._schema_of([name.strip() for name in names])

    def checked(self, schema: StructType) -> pa.Schema:
        """Return the requested columns. Raises ``UsageError`` for unknown names and other types."""
        for expected in self._schema_of(schema.names):
            if schema[expected.name].dataType != expected.dataType:
                raise UsageError(f"column {expected.name} is of type {expected.dataType.simpleString()}")
        return to_arrow_schema(schema)

    def _schema_of(self, names: Sequence[str]) -> StructType:
        if unknown := [name for name in names if name not in self.columns.names]:
            raise UsageError(
                f"{self.source} has no column {', '.join(unknown)}: it has {', '.join(self.columns.names)}"
            )
        return from_arrow_schema(pa.schema([self.columns.field(name) for name in names]))

    def read(
        self, file: Readable, place: Mapping[str, Any], schema: pa.Schema, source: str
    ) -> Iterator[pa.RecordBatch]:
        """Read batches from a file, with the columns of ``schema``; ``place``: the values of the file's columns."""
        columns = [name for name in schema.names if name not in place]
        for batch in read_table(file, self.table, columns, source=source):
            arrays = [
                pa.repeat(pa.scalar(place[column.name], column.type), batch.num_rows)
                if column.name in place
                else batch.column(column.name).cast(column.type)
                for column in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class TableSource(ds.DataSource):
    """A data source with a `SourceTable`. ``source``: its name. ``place``: the columns of a whole file or replica."""

    source: ClassVar[str]
    place: ClassVar[pa.Schema]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raise ``UsageError`` for unknown values of options."""
        super().__init__(options)
        self._table = SourceTable.of(self.source, options, self.place)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.source

    def schema(self) -> StructType:
        """Return the columns of option ``columns``, or all."""
        return self._table.chosen(self.options)


class KafkaSegments(TableSource):
    """The data source of ``spark.read.format("kafka-segments")``."""

    source, place = NAME, PLACE

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Return the reader of these columns."""
        path = self.options.get("path")
        if path is None:
            raise UsageError(f"{NAME} is given no path: .load(PATH)")
        return _Reader(path, dict(self.options), self._table, self._table.checked(schema))


@dataclass
class _Reader(ds.DataSourceReader):
    path: str
    options: Mapping[str, str]
    table: SourceTable
    schema: pa.Schema
    filters: list[ds.Filter] = field(default_factory=list)

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802  (Spark's name)
        """Store the filters, to skip files. Spark still has to apply all: a file may have other rows too."""
        self.filters = filters
        return filters

    def partitions(self) -> list[ds.InputPartition]:
        """Return a partition for each file."""
        files = find_files(self.path, self.options)
        return [ds.InputPartition(file) for file in files if all(map(file.may_have, self.filters))]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one file; nothing if filters have excluded all files."""
        file: SegmentFile | None = partition.value
        if file is None:
            return
        with file.path.open("rb", buffering=0) as opened:
            yield from self.table.read(opened, file.place, self.schema, str(file.path))


def find_files(pattern: str, conf: Mapping[str, str] | None = None) -> list[SegmentFile]:
    """Return the segment files of a path or glob, in order. Raises ``UsageError`` if no file matches."""
    path: Any = storage.place(pattern, conf)
    is_remote = isinstance(path, storage.RemotePath)
    places: Any = path.matches() if is_remote else map(Path, glob.glob(str(path)))  # noqa: PTH207  (a complete path)
    files = [file for place in sorted(places) for file in _files_of(place)]
    if not files:
        raise UsageError(f"{pattern}: no segment files, and no folders of partitions with any")
    return files


def _files_of(place: Path) -> Iterator[SegmentFile]:
    if place.is_file():
        match = _BASE_OFFSET.fullmatch(place.name)
        yield SegmentFile(place, *_topic_partition(place.parent), int(match[1]) if match else None)
        return
    # The name of a log directory may end in a number, too; it has no segments itself.
    for folder in (place, *sorted(place.iterdir())):
        if folder.is_dir() and _PARTITION_FOLDER.fullmatch(folder.absolute().name):
            live = live_segments(folder)
            for name, why in live.left_out.items():
                _LOG.warning("%s/%s: %s", folder, name, why)
            for segment, following in zip_longest(live.segments, live.segments[1:]):
                end = following.base_offset if following else None
                yield SegmentFile(folder / segment.log, *_topic_partition(folder), segment.base_offset, end)


def _topic_partition(folder: Path) -> tuple[str | None, int | None]:
    match = _PARTITION_FOLDER.fullmatch(folder.absolute().name)
    return (match["topic"], int(match["partition"])) if match else (None, None)
