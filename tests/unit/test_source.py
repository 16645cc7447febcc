"""The Spark data sources of folders and of a running cluster: columns, options, who reads what, and which login."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan
from pyspark.sql.types import StructType
from stored_markers import encode_marker

from harness.audit.live.broker_reports import Replica, Span
from harness.audit.live.reading import ReplicaReading
from harness.audit.live.source import MAX_TASKS, BrokerTask, KafkaReplicas, divided, read_pieces
from harness.broker_files.segments import arrow
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.errors import HarnessError, UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ONCE, Connection, Dial
from harness.kafka_api.security import read_security
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
        path = tmp_path / "broker-1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "broker-1"


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
def test_what_nobody_reads_is_not_made(names: list[str], log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_binary", Mock(side_effect=AssertionError))
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


BATCHES = tuple(encode_batch(base_offset=n, records=[Record(n, 1000 + n, b"K", b"v")]) for n in range(10))
ADDRESSES = {broker: Address(f"kafka-{broker}", 9092) for broker in (1, 2, 3)}


def readings(brokers: int, partitions: int) -> dict[Replica, ReplicaReading]:
    places = [("t", number) for number in range(partitions)]
    return {(broker, tp): ReplicaReading(tp, Span(0), 10) for broker in range(1, brokers + 1) for tp in places}


def task(*, goal: int = 10, is_last: bool = False, **of: Any) -> BrokerTask:
    (only,) = divided(readings(1, 1), {TP: goal}, ADDRESSES, tasks=1, rate_bytes_s=None, is_last=is_last)
    return replace(only, **of)


def whole(**fields: Any) -> FakeBroker:
    return FakeBroker({TP: [Held(10, 10, batches=BATCHES)]}, **fields)


def dial_to(broker: Any) -> Dial:
    return lambda _address, **_: broker


def read(broker: FakeBroker, what: BrokerTask) -> tuple[dict[int, bytes], ReplicaReading]:
    """Return the pieces by base offset, and the reading at the end."""
    rows = list(read_pieces(what, dial_to(broker)))
    assert [row["data"] is None for row in rows] == [*[False] * (len(rows) - 1), True]
    assert len({row["number"] for row in rows}) == len(rows)
    return {row["base_offset"]: row["data"] for row in rows[:-1]}, pickle.loads(rows[-1]["reading"])  # noqa: S301  (of this process)


@pytest.mark.parametrize(("tasks", "count"), [(1, 3), (3, 3), (7, 6), (1000, 12)])
def test_every_replica_is_read_by_one_task_of_its_broker_and_tasks_share_the_rate_limit(tasks: int, count: int) -> None:
    plan = divided(readings(3, 4), {}, ADDRESSES, tasks=tasks, rate_bytes_s=1000)
    assert len(plan) == count
    assert all(task.address == ADDRESSES[task.broker] for task in plan)
    shares = [(task.broker, reading.partition) for task in plan for reading in task.readings]
    assert sorted(shares) == sorted(readings(3, 4))
    assert 900 < sum(task.rate_bytes_s or 0 for task in plan) <= 1000


def test_the_two_scans_of_an_audit_number_their_tasks_differently() -> None:
    first, last = (
        divided(readings(3, 4), {}, ADDRESSES, tasks=9, rate_bytes_s=None, is_last=is_last) for is_last in (False, True)
    )
    assert max(task.number for task in first) < MAX_TASKS <= min(task.number for task in last)


def test_a_replica_is_read_to_its_bound_and_on_in_another_task_that_returns_only_the_rest() -> None:
    broker = FakeBroker({TP: [Held(10, 10, batches=BATCHES, aborted=((5, 2),))]})
    pieces, first = read(broker, task(goal=4))
    assert b"".join(pieces.values()) == b"".join(BATCHES)
    assert (first.read_to, first.failure, first.is_complete, first.state) == (10, None, False, None)
    more, last = read(broker, task(is_last=True, readings=(first,)))
    assert more == {}
    assert (last.read_to, last.is_complete, last.aborted) == (10, True, {(5, 2): None})
    assert last.state is not None
    first = read(FakeBroker({TP: [Held(4, 4, batches=BATCHES[:4])]}), task(goal=4))[1]
    pieces, last = read(whole(), task(is_last=True, readings=(first,)))
    assert pieces == {4: b"".join(BATCHES[4:])}
    assert last.span.start == 0


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(BATCHES[0])
    monkeypatch.setattr("harness.audit.live.source.PIECE_BYTES", 3 * size)
    pieces, _ = read(whole(answer_bytes=2 * size), task())
    assert {base: len(data) // size for base, data in pieces.items()} == {0: 4, 4: 4, 8: 2}


def test_a_broker_that_is_gone_is_a_failure_of_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.audit.live.source.PATIENT", ONCE)
    _, reading = read(whole(dies_after=1), task())
    assert reading.failure == "gone"


def test_rows_of_records_have_their_broker() -> None:
    source = KafkaReplicas({"columns": "broker, offset"})
    assert source.schema().names == ["broker", "offset"]
    assert KafkaReplicas({"table": "batches"}).schema().names[:4] == ["topic", "partition", "broker", "magic"]
    with pytest.raises(UsageError, match=r"kafka-replicas has no column file"):
        KafkaReplicas({"columns": "file"}).schema()
    with pytest.raises(UsageError, match=r"is given no brokers"):
        source.reader(source.schema()).partitions()


def test_a_login_goes_to_tasks_with_the_content_of_its_files_and_is_not_printed(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=PlainLoginModule required username="u" password="hush";\n'
    )
    address = replace(ADDRESSES[1], security=read_security(config))
    (sent,) = divided(readings(1, 1), {TP: 10}, {1: address}, tasks=1, rate_bytes_s=None)
    config.unlink()
    received = pickle.loads(pickle.dumps(sent)).address.security  # noqa: S301  (of this process)
    assert received.credentials == ("u", "hush")
    assert "hush" not in str(sent)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    def rows(broker: FakeBroker, columns: str) -> list[dict[str, Any]]:
        dial, place = dial_to(broker), "harness.audit.live.source.Connection"
        monkeypatch.setattr(place, lambda address, policy, clock, _: Connection(address, policy, clock, dial))
        monkeypatch.setattr("harness.audit.live.source.PATIENT", ONCE)
        monkeypatch.setattr("harness.audit.live.source.describe", lambda *_: audited({1: broker}))
        source = KafkaReplicas({"kafka.bootstrap.servers": "kafka-1:9092", "columns": columns})
        reader = source.reader(source.schema())
        (partition,) = reader.partitions()
        return list(pa.Table.from_batches(reader.read(partition)).to_pylist())

    return rows


def test_records_are_those_of_the_batches_that_a_broker_serves(rows: Callable[..., list[dict[str, Any]]]) -> None:
    expected = [{"broker": 1, "offset": offset, "key": b"K"} for offset in range(10)]
    assert rows(whole(), "broker, offset, key") == expected


def test_a_query_of_a_broker_that_is_gone_ends_with_its_name(rows: Callable[..., list[dict[str, Any]]]) -> None:
    with pytest.raises(HarnessError, match=r"^broker 1: gone$"):
        rows(whole(dies_after=5), "offset")
