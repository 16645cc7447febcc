"""Replicas of a running cluster as Spark tables: the Python data source ``kafka-replicas``.

    harness.audit.live.source.register(spark)
    replicas = spark.read.format("kafka-replicas").option("kafka.bootstrap.servers", "kafka-1:9092")
    records = replicas.option("subscribe", "orders,stock-*").load()

Executors read every replica from its own broker, followers too, up to an offset that every replica of the partition had
when the query was planned. Each query reads again. Options:

- ``kafka.bootstrap.servers``: as ``--bootstrap-server``;
- ``subscribe``: topics and globs between commas; all compacted topics by default;
- ``command.config``: a Java client's properties file on the driver's host. Spark sends the login, with the content of
  its certificate files, to the tasks inside their partitions: it is in no plan, event log, setting or command line;
- ``rate.limit.bytes``: bytes a second of all tasks together. Each of N tasks reads at most a N-th of it;
- ``tasks``: about how many tasks read (one a broker by default, which is the minimum);
- ``table``: ``records`` (the default) or ``batches``; ``columns``: names between commas.

The columns of `REPLICA` come first, then those of ``kafka-segments``.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from harness.audit.live.broker_reports import Replica, Span, replica_statuses
from harness.audit.live.cluster import PATIENT, AuditedCluster, client_of, describe
from harness.audit.live.reading import RateLimit, ReplicaReading, open_reader
from harness.audit.live.spool import StoredReplica, bound_of, highest_watermarks, readings_by_broker
from harness.broker_files.segments.key_share import ALL_KEYS, KeyShare
from harness.errors import HarnessError, UsageError
from harness.host.clock import RealClock
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address, parse_bootstrap
from harness.kafka_api.connection import Connection, Dial, SocketStream
from harness.kafka_api.security import read_security
from harness.spark.jobs import describe as describe_job
from harness.spark.jobs import failures_reported, stages_reported
from harness.spark.source import SourceTable, TableSource
from harness.spark.stored_segment import STORED_SEGMENTS, StoredSegment

NAME: Final = "kafka-replicas"
SERVERS: Final = "kafka.bootstrap.servers"
REPLICA: Final = pa.schema({"topic": pa.string(), "partition": pa.int32(), "broker": pa.int32()})
PIECES: Final = pa.schema(
    {
        **{field.name: field.type for field in REPLICA},
        "number": pa.int32(),
        "base_offset": pa.int64(),
        "data": pa.binary(),
        "reading": pa.binary(),
    }
)
"""Batches as bytes. ``number``: no other piece of an audit has it. The last row of a replica has only ``reading``, a
pickled `ReplicaReading`."""

PIECE_BYTES: Final = 8 << 20
PENDING_BYTES: Final = 64 << 20
"""The most that a task keeps of all its replicas."""
MAX_TASKS: Final = 1000
_PIECES_A_TASK: Final = 1 << 20


@failures_reported()
def read_with_executors(
    cluster: AuditedCluster,
    readings: Mapping[Replica, ReplicaReading],
    share: KeyShare,
    *,
    session: SparkSession,
    rate_bytes_s: int | None,
    report: Callable[[str, int, int], None],
) -> tuple[Mapping[Replica, ReplicaReading], dict[Replica, StoredReplica]]:
    """Read to the bounds, then to the high watermarks; return the readings, and the segments on executors' disks.

    What an executor stored is lost with the executor, and cannot be read again: by then, the cleaner may have removed
    other records. Spark then fails every job that needs the data (`harness.spark.jobs`).

    ``share``: the keys to store. ``rate_bytes_s``: of all executors together. ``report``: as `stages_reported`. A
    replica that cannot be read gets a ``failure``. Raises as `failures_reported`.
    """
    stored: dict[Replica, StoredReplica] = {replica: {} for replica in readings}

    def scan(goals: Mapping[TopicPartition, int], where: str, *, is_last: bool) -> DataFrame:
        """Read on, and replace the readings."""
        nonlocal readings
        context, addresses = session.sparkContext, cluster.client.brokers
        tasks = divided(
            readings,
            goals,
            addresses,
            tasks=context.defaultParallelism,
            rate_bytes_s=rate_bytes_s,
            is_last=is_last,
            share=share,
        )
        describe_job(session, f"read {len(readings)} replicas {where}")
        # The rows of an RDD, which have the login, are in no plan and no event log.
        rows_of_tasks = context.parallelize([(pickle.dumps(task),) for task in tasks], len(tasks)).toDF("task binary")
        with stages_reported(session, report):
            pieces = rows_of_tasks.mapInArrow(_pieces_of, from_arrow_schema(PIECES))
            pieces = pieces.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
        rows = pieces.selectExpr("*", "length(data) AS size_bytes").drop("data").collect()
        readings = {}
        for row in sorted(rows, key=lambda row: row["number"] or 0):
            replica = row["broker"], (row["topic"], row["partition"])
            if row["reading"] is not None:
                readings[replica] = pickle.loads(row["reading"])  # noqa: S301  (of this audit's tasks)
                continue
            name = f"broker {row['broker']}, {name_of(replica[1])} at {row['base_offset']}"
            segment = StoredSegment(row["number"], name, row["size_bytes"])
            stored[replica][row["base_offset"]] = cast("Path", segment)
        return pieces

    bounds = {reading.partition: reading.bound for reading in readings.values()}
    first = scan(bounds, "to their bounds", is_last=False)
    last = scan(highest_watermarks(cluster, bounds), "to their ends", is_last=True)
    pieces = first.unionAll(last).where("data IS NOT NULL")
    pieces.select("number", "data").createOrReplaceTempView(STORED_SEGMENTS)
    return readings, stored


def _pieces_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            task = pickle.loads(row["task"])  # noqa: S301  (of this audit)
            yield from (pa.RecordBatch.from_pylist([piece], PIECES) for piece in read_pieces(task))


def register(spark: SparkSession) -> None:
    """Register the format with a session."""
    spark.dataSource.register(KafkaReplicas)


@dataclass(frozen=True)
class BrokerTask:
    """What one Spark task reads from one broker: each partition to its goal.

    ``number``: a different one for each task of an audit, below twice `MAX_TASKS`. ``is_last``: it reads as
    `BrokerReader.finish` does. ``rate_bytes_s``: the task's part of the rate limit. ``share``: the keys to store.
    """

    number: int
    broker: int
    address: Address
    readings: tuple[ReplicaReading, ...]
    goals: Mapping[TopicPartition, int]
    is_last: bool = False
    rate_bytes_s: int | None = None
    share: KeyShare = ALL_KEYS


def divided(
    readings: Mapping[Replica, ReplicaReading],
    goals: Mapping[TopicPartition, int],
    addresses: Mapping[int, Address],
    *,
    tasks: int,
    rate_bytes_s: int | None,
    is_last: bool = False,
    share: KeyShare = ALL_KEYS,
) -> list[BrokerTask]:
    """Return about so many tasks, at least one for each broker. Together they keep to the rate limit.

    Their login has the content of its files. Raises `UsageError` for a login that is not valid on other hosts.
    """
    by_broker = readings_by_broker(readings)
    each = max(min(tasks, MAX_TASKS) // max(len(by_broker), 1), 1)
    parts = [(broker, mine[at::each]) for broker, mine in by_broker.items() for at in range(min(each, len(mine)))]
    rate = None if rate_bytes_s is None else max(rate_bytes_s // len(parts), 1)
    security = next((address.security for address in addresses.values()), None)
    login = None if security is None else security.without_files
    return [
        BrokerTask(
            number,
            broker,
            replace(addresses[broker], security=login),
            tuple(map(copy, part)),
            {reading.partition: goals[reading.partition] for reading in part if reading.partition in goals},
            is_last,
            rate,
            share,
        )
        for number, (broker, part) in enumerate(parts, MAX_TASKS if is_last else 0)
    ]


class KafkaReplicas(TableSource):
    """The data source of ``spark.read.format("kafka-replicas")``: see the module."""

    source, place = NAME, REPLICA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns."""
        return _Reader(dict(self.options), self._table, self._table.checked(schema))


@dataclass
class _Reader(DataSourceReader):
    options: Mapping[str, str]
    table: SourceTable
    schema: pa.Schema

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks, on the driver's host. Raises ``UsageError`` where brokers cannot be asked."""
        if SERVERS not in self.options:
            raise UsageError(f"{NAME} is given no brokers: .option({SERVERS!r}, 'HOST:PORT')")
        config = self.options.get("command.config")
        security = None if config is None else read_security(Path(config))
        names = [name.strip() for name in self.options.get("subscribe", "").split(",") if name.strip()]
        cluster = describe(client_of(parse_bootstrap(self.options[SERVERS], security)), names)
        statuses = replica_statuses(cluster)
        unseen = {broker: why for (broker, _), why in statuses.unseen.items()}
        for broker, why in {**unseen, **statuses.silent}.items():
            raise UsageError(f"broker {broker} does not show its replicas: {why}")
        bounds = {tp: bound_of(replicas.values()) for tp, replicas in statuses.by_partition.items()}
        readings = {
            (broker, tp): ReplicaReading(tp, Span(status.log_start, bounds[tp]), bounds[tp])
            for broker, tp, status in statuses.in_order
        }
        limit, count = self.options.get("rate.limit.bytes"), int(self.options.get("tasks", 1))
        rate_bytes_s = None if limit is None else int(limit)
        tasks = divided(readings, bounds, cluster.client.brokers, tasks=count, rate_bytes_s=rate_bytes_s)
        return [InputPartition(task) for task in tasks] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the replicas of one task. Raises `HarnessError` for a replica that cannot be read."""
        for row in () if partition.value is None else read_pieces(partition.value):
            if row["data"] is not None:
                source = f"broker {row['broker']}, {row['topic']}-{row['partition']} at {row['base_offset']}"
                place = {name: row[name] for name in REPLICA.names}
                yield from self.table.read(BytesIO(row["data"]), place, self.schema, source)
            elif failure := pickle.loads(row["reading"]).failure:  # noqa: S301  (of this process)
                raise HarnessError(f"broker {row['broker']}: {failure}")


@dataclass
class _Buffers:
    """Batches of the replicas of a task that were read, and are not in a piece yet."""

    task: BrokerTask
    pending: dict[TopicPartition, tuple[int, bytearray]] = field(default_factory=dict)
    pieces: int = 0

    def write(self, reading: ReplicaReading, base_offset: int, batches: memoryview, _end: int) -> None:
        data = self.task.share.batches_of(batches, reading.bound, source=name_of(reading.partition))
        self.pending.setdefault(reading.partition, (base_offset, bytearray()))[1].extend(data)

    def pieces_from(self, least_bytes: int) -> Iterator[dict[str, Any]]:
        """Yield a piece for each replica with so many bytes; for all replicas where together they have too many."""
        if sum(len(data) for _, data in self.pending.values()) > PENDING_BYTES:
            least_bytes = 0
        for tp, (base_offset, data) in list(self.pending.items()):
            if len(data) < least_bytes:
                continue
            del self.pending[tp]
            if self.pieces == _PIECES_A_TASK:
                raise HarnessError(f"{name_of(tp)} of broker {self.task.broker} is in more than {self.pieces} pieces")
            number = self.task.number * _PIECES_A_TASK + self.pieces
            self.pieces += 1
            yield self.row(tp, number=number, base_offset=base_offset, data=bytes(data))

    def row(self, tp: TopicPartition, **columns: Any) -> dict[str, Any]:
        place = {"topic": tp[0], "partition": tp[1], "broker": self.task.broker}
        return {**dict.fromkeys(PIECES.names), **place, **columns}


def read_pieces(task: BrokerTask, dial: Dial = SocketStream) -> Iterator[dict[str, Any]]:
    """Yield rows of `PIECES` of one task. Replicas that cannot be read have a ``failure`` in their reading."""
    buffers, clock, readings = _Buffers(task), RealClock(), tuple(map(copy, task.readings))
    limit = None if task.rate_bytes_s is None else RateLimit(task.rate_bytes_s, clock)
    try:
        with closing(Connection(task.address, PATIENT, clock, dial)) as connection:
            reader = open_reader(connection, clock, buffers.write, limit.pay if limit else lambda _: None, limit)
            for _ in (reader.finish if task.is_last else reader.read_on)(readings, task.goals):
                yield from buffers.pieces_from(PIECE_BYTES)
    except (OSError, HarnessError) as error:
        for reading in readings:
            reading.failure = reading.failure or str(error)
    yield from buffers.pieces_from(0)
    for reading in readings:
        yield buffers.row(reading.partition, reading=pickle.dumps(reading))
