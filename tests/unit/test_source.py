"""The Spark data source: folders, columns, filters, and rejected options."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan
from pyspark.sql.types import StructType
from stored_markers import encode_marker

from harness.broker_files.segments import arrow
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.errors import UsageError
from harness.spark.source import KafkaSegments, find_files, register


def put(*offsets: int) -> bytes:
    records = [Record(offset, 1000 + offset, b"k%d" % offset, b"v", (("h", None),)) for offset in offsets]
    return encode_batch(base_offset=offsets[0], records=records, codec="zstd")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    files = {
        "a-b-0/00000000000000000000.log": put(0, 1),
        "a-b-0/00000000000000000010.log": put(10),
        "a-b-0/00000000000000000010.log.deleted": b"what a broker would not load",
        "a-b-0/00000000000000000010.index": bytes(100),
        "a-b-1/00000000000000000005.log": put(5)
        + encode_marker(base_offset=6, producer_id=1, producer_epoch=0, commit=True, timestamp_ms=7),
        "c-0/00000000000000000000.log": b"",
        "c-0.0123-delete/00000000000000000000.log": b"the folder is marked for deletion",
        "replication-offset-checkpoint": b"0\n0\n",
    }
    for name, data in files.items():
        path = tmp_path / "broker" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "broker"


@pytest.fixture
def segments(spark: SparkSession) -> DataFrameReader:
    register(spark)
    return spark.read.format("kafka-segments")


def test_records_of_a_log_directory(segments: DataFrameReader, log_dir: Path) -> None:
    rows = segments.load(str(log_dir)).orderBy("topic", "partition", "offset").collect()
    assert [(row.topic, row.partition, row.segment, row.offset) for row in rows] == [
        ("a-b", 0, 0, 0), ("a-b", 0, 0, 1), ("a-b", 0, 10, 10), ("a-b", 1, 5, 5),
    ]  # fmt: skip
    assert rows[0].asDict(recursive=True) == {
        "topic": "a-b", "partition": 0, "segment": 0, "file": str(log_dir / "a-b-0" / "00000000000000000000.log"),
        "batch_offset": 0, "offset": 0, "timestamp_ms": 1000, "key": b"k0", "value": b"v",
        "headers": [{"name": "h", "value": None}], "tombstone": False, "attributes": 0, "leader_epoch": 0,
        "producer_id": -1, "producer_epoch": -1, "transactional": False,
    }  # fmt: skip


def test_batches_and_options(segments: DataFrameReader, log_dir: Path) -> None:
    batches = segments.option("table", "batches").load(str(log_dir / "a-b-*")).orderBy("file", "base_offset")
    assert [(row.codec, row.marker) for row in batches.collect()] == [("zstd", None)] * 3 + [("none", "commit")]


def test_a_file_is_a_partition_and_only_wanted_columns_come(segments: DataFrameReader, log_dir: Path) -> None:
    by_option = segments.option("columns", "offset, key").load(str(log_dir))
    by_schema = segments.schema("offset long, key binary").load(str(log_dir))
    for frame in (by_option, by_schema):
        assert frame.columns == ["offset", "key"]
        assert frame.rdd.getNumPartitions() == 4
        assert sorted(row.offset for row in frame.collect()) == [0, 1, 5, 10]
    assert segments.load(str(log_dir)).count() == 4


@pytest.mark.parametrize("names", [["offset"], ["topic", "tombstone"], ["topic"]])
def test_keys_values_and_headers_are_not_made_for_nobody(
    names: list[str], log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(arrow, "_binary", refuse)
    source = KafkaSegments({"path": str(log_dir)})
    everything = source.schema()
    reader = source.reader(StructType([field for field in everything.fields if field.name in names]))
    rows = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema.names == names
            rows += batch.num_rows
    assert rows == 4
    with pytest.raises(AssertionError):
        list(source.reader(everything).read(reader.partitions()[0]))


def test_filters_spare_files(segments: DataFrameReader, log_dir: Path) -> None:
    def spared(*filters: Any) -> list[str]:
        reader = KafkaSegments({"path": str(log_dir)}).reader(StructType())
        assert list(reader.pushFilters(list(filters))) == list(filters)
        paths = {partition.value.path for partition in reader.partitions()}
        files = [file for file in find_files(str(log_dir)) if file.path not in paths]
        return [f"{file.path.parent.name}/{file.segment}" for file in files]

    assert spared(EqualTo(("topic",), "a-b"), EqualTo(("partition",), 1)) == ["a-b-0/0", "a-b-0/10", "c-0/0"]
    assert spared(In(("topic",), ("c",))) == ["a-b-0/0", "a-b-0/10", "a-b-1/5"]
    assert spared(EqualTo(("offset",), 7)) == ["a-b-0/10"]
    assert spared(LessThan(("offset",), 9), GreaterThan(("offset",), 10)) == ["a-b-0/0", "a-b-0/10"]
    assert spared(EqualTo(("key",), b"k1")) == []
    records = segments.load(str(log_dir))
    assert records.where("topic = 'a-b' and partition = 0 and offset > 0").count() == 2
    assert records.where("partition = 9").count() == 0


def test_what_it_refuses(segments: DataFrameReader, log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="option table is 'keys': records or batches"):
        segments.option("table", "keys").load(str(log_dir))
    segments.option("table", "records")
    with pytest.raises(AnalysisException, match="kafka-segments has no column crc, x: it has topic, partition, "):
        segments.option("columns", "crc,x").load(str(log_dir))
    with pytest.raises(UsageError, match="no segment files, and no folders of partitions with any"):
        find_files(str(tmp_path / "nothing-*"))
    source = KafkaSegments({"path": str(log_dir)})
    with pytest.raises(UsageError, match="column offset is of type bigint"):
        source.reader(StructType().add("offset", "string"))
    with pytest.raises(UsageError, match="is given no path"):
        KafkaSegments({}).reader(StructType())


def test_a_broken_file_ends_the_query(segments: DataFrameReader, log_dir: Path) -> None:
    path = log_dir / "c-0" / "00000000000000000000.log"
    path.write_bytes(put(0) + put(1)[:-1])
    with pytest.raises(PythonException, match=rf"c-0/{path.name} at byte {len(put(0))}: batch is cut"):
        segments.schema("offset long").load(str(path)).collect()
