"""The parser of segments, transaction indexes and producer snapshots against Kafka's own DumpLogSegments.

One broker writes a sample of everything that its log can hold; the tool prints it line by line, and what
the parser gives must print the same lines. That the sample holds everything is read off the tool's output.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from local_cluster import BOUND_S, local_cluster
from sandbox import completed

from harness.broker_files.segments.arrow import Table, read_table
from harness.broker_files.segments.batches import Batch, Record, iter_batches, iter_records, marker
from harness.broker_files.segments.codecs import CODECS
from harness.broker_files.side_files.producer_state import iter_txnindex, read_producer_snapshot
from harness.clients.librdkafka import CONFIG
from harness.cluster.cluster import Cluster
from harness.host.java import find_java
from harness.schedules.timers import FAST
from harness.targets import find_target
from harness.targets.jars import jars_for

pytestmark = pytest.mark.commit

BROKER = 1
ALONE = {
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1", "log.cleaner.backoff.ms": "60",
    "log.cleaner.dedupe.buffer.size": "1100000",
}  # fmt: skip
COMPACTED = "compacted"
COMPACTED_SETTINGS = {**FAST.topic, "delete.retention.ms": "600000"}
"""Cleaned at once; what has a delete horizon stays, with it."""
UNCOMPACTED = "uncompacted"
"""Keeps what a cleaner takes out of transaction indexes."""
BY_CLIENT = {f"client-{codec}": codec for codec in CODECS}
BY_BROKER = {f"broker-{codec}": codec for codec in CODECS if codec != "none"}
"""Compressed again by the broker's own libraries, which frame snappy and lz4 in their own way."""
APPEND_TIMED = "client-lz4"
HEADERS: list[tuple[str, str | bytes | None]] = [("one", b"1"), ("null", None), ("one", b"again")]

Line = dict[str, str]


@dataclass(frozen=True)
class Dump:
    """One file, and what DumpLogSegments prints of it: the fields of each line, in order."""

    path: Path
    lines: list[Line]


class Sampler:
    """Fills the topics of one broker."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._runtime, self._folder = cluster, cluster.runtime, folder
        self._plain = self._producer()

    def sample(self) -> None:
        """Write everything, wait for the cleaner, kill the broker, and copy its log directory."""
        self._runtime.start_cluster()
        self._cluster.wait_registered()
        settings: dict[str, dict[str, str]] = {
            COMPACTED: COMPACTED_SETTINGS, UNCOMPACTED: {}, **{topic: {} for topic in BY_CLIENT},
            **{topic: {"compression.type": codec} for topic, codec in BY_BROKER.items()},
            APPEND_TIMED: {"message.timestamp.type": "LogAppendTime"},
        }  # fmt: skip
        for topic, own in settings.items():
            self._cluster.admin.create_topics({(topic, 0): (BROKER,)}, own)
        self._cluster.wait(lambda: len(self._cluster.admin.partitions(list(settings))) == len(settings), "the topics")
        for topic in (*BY_CLIENT, *BY_BROKER):
            self._write_records(topic, BY_CLIENT.get(topic, "none"))
        self._write_transactions()
        self._cluster.wait(self._is_cleaned, "the cleaner to leave every kind of batch")
        self._runtime.kill(BROKER)
        for topic in settings:
            self._copy(topic)

    def _producer(self, **settings: str) -> Producer:
        config = {"bootstrap.servers": str(self._runtime.address(BROKER)), "linger.ms": 50}
        return Producer({**CONFIG, **config, **settings})

    def _write_records(self, topic: str, codec: str) -> None:
        """Two batches: of records with and without key, value and headers, and of many."""
        producer = self._producer(**{"compression.type": codec})
        producer.produce(topic, key=b"key", value=b"value" * 50, headers=HEADERS)
        producer.produce(topic, key=None, value=b"no-key")
        producer.produce(topic, key=b"no-value", value=None)
        producer.produce(topic, key=b"", value=b"")
        producer.flush()
        for number in range(300):
            producer.produce(topic, key=f"key-{number}".encode(), value=b"x" * number)
        producer.flush()

    def _write_transactions(self) -> None:
        """Three transactions, the second aborted, with records that survive cleaning and some that do not."""
        producer = self._producer(**{"transactional.id": "t", "compression.type": "zstd"})
        producer.init_transactions(BOUND_S)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for key in ("a", "b", "c"):
                producer.produce(COMPACTED, key=key, value=b"v" * 100, headers=HEADERS)
            producer.produce(COMPACTED, key="deleted", value=None)
            producer.produce(UNCOMPACTED, key="a", value=b"v")
            producer.flush()
            end(BOUND_S)
        # The next to last data batch of the producer loses some records, the last one all of them.
        producer.begin_transaction()
        for key in ("gone-1", "gone-2"):
            producer.produce(COMPACTED, key=key, value=b"superseded")
        producer.flush()
        producer.commit_transaction(BOUND_S)
        for key in ("b", "gone-1", "gone-2"):
            self._plain.produce(COMPACTED, key=key, value=b"newer")
        self._plain.flush()

    def _is_cleaned(self) -> bool:
        """Roll the segment by one more record, and look at what there is by now."""
        self._plain.produce(COMPACTED, key="filler", value=b"f")
        self._plain.flush()
        batches = [batch for path in self._copy(COMPACTED).glob("*.log") for batch in batches_of(path)]
        horizons = {batch.is_control for batch in batches if batch.delete_horizon_ms is not None}
        empty = {batch.is_control for batch in batches if batch.is_empty}
        gaps = any(0 < b.record_count <= b.last_offset - b.base_offset for b in batches)
        return horizons == {False, True} and False in empty and gaps

    def _copy(self, topic: str) -> Path:
        destination = self._folder / f"{topic}-0"
        self._runtime.copy_partition(BROKER, topic, 0, destination)
        return destination


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[Dump]:
    folder, logs = tmp_path_factory.mktemp("segments"), tmp_path_factory.mktemp("logs")
    with local_cluster("kafka-3.9", logs, ALONE, (BROKER,)) as cluster:
        Sampler(cluster, folder).sample()
    wanted = (".log", ".txnindex", ".snapshot")
    files = [path for path in sorted(folder.glob("*/*")) if path.suffix in wanted and path.stat().st_size]
    classpath = jars_for(find_target("kafka-3.9")).classpath
    arguments = ["--files", ",".join(map(str, files)), "--print-data-log", "--deep-iteration"]
    tool = (find_java().path, "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.tools.DumpLogSegments")
    done = completed(*tool, *arguments, timeout_s=BOUND_S)
    sections = re.split(r"^Dumping (.*)\n", done.stdout, flags=re.MULTILINE)[1:]
    assert sections[::2] == [str(path) for path in files], done.stderr
    dumps = []
    for path, text in zip(files, sections[1::2], strict=True):
        lines = [line for line in text.splitlines() if line and not line.startswith("Log starting offset: ")]
        dumps.append(Dump(path, [dict(re.findall(r"(\w+): (\S*)", line)) for line in lines]))
    return dumps


def batches_of(log: Path) -> list[Batch]:
    return list(iter_batches(log.read_bytes(), source=str(log)))


def of_kind(dumps: list[Dump], suffix: str) -> list[Dump]:
    """Return the dumps of one kind of file; there must be some."""
    found = [dump for dump in dumps if dump.path.suffix == suffix]
    assert found
    return found


def words(**fields: object) -> Line:
    """Return fields as the JVM prints them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}


def optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def sequence(batch: Batch, offset: int) -> int:
    return -1 if batch.base_sequence < 0 else batch.base_sequence + offset - batch.base_offset


def time_of(batch: Batch, timestamp_ms: int) -> Line:
    """Return a timestamp under the name of its type."""
    return words(**{"CreateTime" if batch.timestamp_type == "create" else "LogAppendTime": timestamp_ms})


def batch_line(batch: Batch) -> Line:
    return time_of(batch, batch.max_timestamp_ms) | words(
        baseOffset=batch.base_offset, lastOffset=batch.last_offset, count=batch.record_count,
        baseSequence=batch.base_sequence, lastSequence=sequence(batch, batch.last_offset),
        producerId=batch.producer_id, producerEpoch=batch.producer_epoch, partitionLeaderEpoch=batch.leader_epoch,
        isTransactional=batch.is_transactional, isControl=batch.is_control,
        deleteHorizonMs=optional(batch.delete_horizon_ms), position=batch.position, size=batch.size_bytes,
        magic=2, compresscodec=batch.codec, crc=batch.crc, isvalid=True,
    )  # fmt: skip


def record_line(batch: Batch, record: Record, source: str) -> Line:
    line = time_of(batch, record.timestamp_ms) | words(
        offset=record.offset, keySize=-1 if record.key is None else len(record.key),
        valueSize=-1 if record.value is None else len(record.value), sequence=sequence(batch, record.offset),
        headerKeys=f"[{','.join(name for name, _ in record.headers)}]",
    )  # fmt: skip
    result = marker(batch, source=source)
    if result is not None:
        return line | words(endTxnMarker=result.type.upper(), coordinatorEpoch=result.coordinator_epoch)
    if record.key is not None:
        line["key"] = record.key.decode()
    if record.value is not None:
        line["payload"] = record.value.decode()
    return line


def test_the_sample_holds_every_kind(dumps: list[Dump]) -> None:
    logs = of_kind(dumps, ".log")
    lines = [line for dump in logs for line in dump.lines]
    batches = [line for line in lines if "baseOffset" in line]
    records = [line for line in lines if "offset" in line]
    assert {batch["compresscodec"] for batch in batches} == set(CODECS)
    for topic, codec in (BY_CLIENT | BY_BROKER).items():
        (of_topic,) = [dump for dump in logs if dump.path.parent.name == f"{topic}-0"]
        assert {line["compresscodec"] for line in of_topic.lines if "baseOffset" in line} == {codec}, topic
    assert {record["endTxnMarker"] for record in records if "endTxnMarker" in record} == {"COMMIT", "ABORT"}
    with_horizon = [batch for batch in batches if batch["deleteHorizonMs"] != "OptionalLong.empty"]
    assert {batch["isControl"] for batch in with_horizon} == {"true", "false"}
    assert any(batch["count"] == "0" and batch["isControl"] == "false" for batch in batches)
    assert any(0 < int(b["count"]) <= int(b["lastOffset"]) - int(b["baseOffset"]) for b in batches)
    assert any("LogAppendTime" in batch for batch in batches)
    assert any(record["keySize"] == "-1" for record in records)
    assert any(record["valueSize"] == "-1" for record in records)
    assert any(record["headerKeys"] == "[one,null,one]" for record in records)


def test_batches_and_records_are_what_kafka_reads(dumps: list[Dump]) -> None:
    for dump in of_kind(dumps, ".log"):
        lines = []
        for batch in batches_of(dump.path):
            lines += [batch_line(batch)]
            lines += [record_line(batch, record, "log") for record in iter_records(batch, source="log")]
        assert lines == dump.lines, dump.path


def test_the_compiled_reader_reads_the_same(dumps: list[Dump]) -> None:
    for dump in of_kind(dumps, ".log"):
        batches = batches_of(dump.path)
        records = [
            (record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
            for batch in batches
            if not batch.is_control
            for record in iter_records(batch, source=str(dump.path))
        ]
        markers = [marker(batch, source=str(dump.path)) for batch in batches]
        assert arrow_rows(dump.path, "records", "offset", "timestamp_ms", "key", "value", "headers") == records
        assert arrow_rows(dump.path, "batches", "position", "crc", "delete_horizon_ms", "marker") == [
            (batch.position, batch.crc, batch.delete_horizon_ms, its.type if its else None)
            for batch, its in zip(batches, markers, strict=True)
        ]


def arrow_rows(path: Path, table: Table, *columns: str) -> list[tuple[object, ...]]:
    with path.open("rb") as file:
        return [
            tuple([(h["name"], h["value"]) for h in row[name]] if name == "headers" else row[name] for name in columns)
            for batch in read_table(file, table, columns, source=str(path))
            for row in batch.to_pylist()
        ]


def test_transaction_indexes_are_what_kafka_reads(dumps: list[Dump]) -> None:
    for dump in of_kind(dumps, ".txnindex"):
        assert [
            words(
                version=0, producerId=entry.producer_id, firstOffset=entry.first_offset, lastOffset=entry.last_offset,
                lastStableOffset=entry.last_stable_offset,
            )
            for entry in iter_txnindex(dump.path.read_bytes(), source=str(dump.path))
        ] == dump.lines  # fmt: skip


def test_producer_snapshots_are_what_kafka_reads(dumps: list[Dump]) -> None:
    for dump in of_kind(dumps, ".snapshot"):
        assert [
            words(
                producerId=entry.producer_id, producerEpoch=entry.producer_epoch,
                coordinatorEpoch=entry.coordinator_epoch, timestamp=entry.timestamp_ms,
                currentTxnFirstOffset=optional(entry.current_txn_first_offset), lastTimestamp=entry.timestamp_ms,
                firstSequence=max(-1, entry.last_sequence - entry.offset_delta), lastSequence=entry.last_sequence,
                lastOffset=entry.last_offset, offsetDelta=entry.offset_delta,
            )
            for entry in read_producer_snapshot(dump.path.read_bytes(), source=str(dump.path))
        ] == dump.lines  # fmt: skip


def test_header_values_are_what_was_written(dumps: list[Dump]) -> None:
    """The tool prints names of headers only."""
    for dump in of_kind(dumps, ".log"):
        if dump.path.parent.name.removesuffix("-0") in BY_CLIENT | BY_BROKER:
            first = batches_of(dump.path)[0]
            record = next(iter_records(first, source=str(dump.path)))
            assert list(record.headers) == HEADERS, dump.path
