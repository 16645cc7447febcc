"""Replicas of a running cluster as Spark tables: the Python data source ``kafka-replicas``.

    from harness.audit.live.source import register

    register(spark)
    replicas = spark.read.format("kafka-replicas").option("kafka.bootstrap.servers", "kafka-1:9092")
    records = replicas.option("subscribe", "orders,stock-*").load()
    records.groupBy("topic", "partition", "broker").count().show()

Executors read every replica from its own broker, followers too, up to an offset that every replica of the partition had
when the query was planned. Each query reads again. Options:

- ``kafka.bootstrap.servers``: as ``--bootstrap-server``;
- ``subscribe``: topics and globs between commas; all compacted topics by default;
- ``command.config``: a Java client's properties file on the driver's host. Spark sends the login, with the content of
  its certificate files, to the tasks inside their partitions: it is in no plan, event log, setting or command line;
- ``rate.limit.bytes``: bytes a second of all tasks together. Each of N tasks reads at most a N-th of it;
- ``tasks``: about how many tasks read (one a broker by default, which is the minimum);
- ``table``: ``records`` (the default), ``batches``, or ``pieces``; ``columns``: names between commas.

The columns of `REPLICA` come first, then those of ``kafka-segments``. `PIECES` are whole batches as bytes, and at the
end of each replica how far it was read and what its broker reported. For ``pieces``, the option ``plan`` may name a
file with a pickled list of `BrokerTask` in place of the servers and topics: a second plan reads on from the readings of
the first.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from harness.audit.live.broker_reports import replica_statuses
from harness.audit.live.cluster import PATIENT, client_of, describe
from harness.audit.live.rate_limit import RateLimit
from harness.audit.live.reading import ReplicaReading, open_reader
from harness.audit.live.spans import Span
from harness.audit.live.spool import Replica, bound_of
from harness.errors import HarnessError, UsageError
from harness.host.clock import RealClock
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address, parse_bootstrap
from harness.kafka_api.connection import Connection, Dial, SocketStream
from harness.kafka_api.security import Security, read_security
from harness.spark.source import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "kafka-replicas"
SERVERS: Final = "kafka.bootstrap.servers"
REPLICA: Final = pa.schema({"topic": pa.string(), "partition": pa.int32(), "broker": pa.int32()})
PIECES_TABLE: Final = "pieces"
PIECES: Final = pa.schema(
    {
        **{field.name: field.type for field in REPLICA},
        "number": pa.int32(),
        "base_offset": pa.int64(),
        "data": pa.binary(),
        "reading": pa.binary(),
    }
)
"""``number``: no other piece of an audit has it. The last row of a replica has only ``reading``, a
pickled `ReplicaReading`."""

PIECE_BYTES: Final = 8 << 20
PENDING_BYTES: Final = 64 << 20
"""The most that a task keeps of all its replicas."""
MAX_TASKS: Final = 1000
_PIECES_A_TASK: Final = 1 << 20


def register(spark: SparkSession) -> None:
    """Register the format with a session."""
    spark.dataSource.register(KafkaReplicas)


@dataclass(frozen=True)
class BrokerTask:
    """What one Spark task reads from one broker: each partition to its goal.

    ``number``: a different one for each task of an audit, below twice `MAX_TASKS`. ``is_last``: it reads as
    `BrokerReader.finish` does. ``rate_bytes_s``: the task's share of the rate limit.
    """

    number: int
    broker: int
    address: Address
    readings: tuple[ReplicaReading, ...]
    goals: Mapping[TopicPartition, int]
    is_last: bool = False
    rate_bytes_s: int | None = None


def divided(
    readings: Mapping[Replica, ReplicaReading],
    goals: Mapping[TopicPartition, int],
    addresses: Mapping[int, Address],
    *,
    tasks: int,
    rate_bytes_s: int | None,
    is_last: bool = False,
) -> list[BrokerTask]:
    """Return about so many tasks, at least one for each broker. Together they keep to the rate limit."""
    by_broker: dict[int, list[ReplicaReading]] = {}
    for (broker, _), reading in sorted(readings.items(), key=lambda item: item[0]):
        by_broker.setdefault(broker, []).append(reading)
    each = max(min(tasks, MAX_TASKS) // max(len(by_broker), 1), 1)
    shares = [(broker, mine[at::each]) for broker, mine in by_broker.items() for at in range(min(each, len(mine)))]
    rate = None if rate_bytes_s is None else max(rate_bytes_s // len(shares), 1)
    return [
        BrokerTask(
            number,
            broker,
            replace(addresses[broker], security=None),
            tuple(map(copy, share)),
            {reading.partition: goals[reading.partition] for reading in share if reading.partition in goals},
            is_last,
            rate,
        )
        for number, (broker, share) in enumerate(shares, MAX_TASKS if is_last else 0)
    ]


class KafkaReplicas(DataSource):
    """The data source of ``spark.read.format("kafka-replicas")``: see the module."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raise ``UsageError`` for unknown values of options."""
        super().__init__(options)
        is_raw = options.get("table") == PIECES_TABLE
        self._table = None if is_raw else SourceTable.of(NAME, options, REPLICA)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of option ``columns``, or all."""
        return from_arrow_schema(PIECES) if self._table is None else self._table.chosen(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns."""
        return _Reader(dict(self.options), self._table, None if self._table is None else self._table.checked(schema))


@dataclass
class _Reader(DataSourceReader):
    options: Mapping[str, str]
    table: SourceTable | None
    schema: pa.Schema | None

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks, on the driver's host. Raises ``UsageError`` where brokers cannot be asked."""
        config = self.options.get("command.config")
        security = None if config is None else read_security(Path(config)).without_files
        plan = self.options.get("plan")
        tasks = self._tasks(security) if plan is None else pickle.loads(Path(plan).read_bytes())  # noqa: S301  (ours)
        return [InputPartition(replace(task, address=replace(task.address, security=security))) for task in tasks] or [
            InputPartition(None)
        ]

    def _tasks(self, security: Security | None) -> list[BrokerTask]:
        if SERVERS not in self.options:
            raise UsageError(f"{NAME} is given no brokers: .option({SERVERS!r}, 'HOST:PORT')")
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
        limit = self.options.get("rate.limit.bytes")
        return divided(
            readings,
            bounds,
            cluster.client.brokers,
            tasks=int(self.options.get("tasks", 1)),
            rate_bytes_s=None if limit is None else int(limit),
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the replicas of one task. Raises `HarnessError` for a replica that cannot be read, except as pieces."""
        task: BrokerTask | None = partition.value
        if task is None:
            return
        for piece in read_pieces(task):
            if self.table is None:
                yield piece
                continue
            for row in piece.to_pylist():
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

    def write(self, tp: TopicPartition, base_offset: int, batches: memoryview, _next_offset: int) -> None:
        self.pending.setdefault(tp, (base_offset, bytearray()))[1].extend(batches)

    def pieces_from(self, least_bytes: int) -> Iterator[pa.RecordBatch]:
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
            yield self.rows({"number": number, "base_offset": base_offset, "data": bytes(data)}, tp)

    def rows(self, columns: Mapping[str, object], tp: TopicPartition) -> pa.RecordBatch:
        row = {"topic": tp[0], "partition": tp[1], "broker": self.task.broker, **columns}
        return pa.RecordBatch.from_pylist([row], schema=PIECES)


def read_pieces(task: BrokerTask, dial: Dial = SocketStream) -> Iterator[pa.RecordBatch]:
    """Yield `PIECES` of one task. Replicas that cannot be read have a ``failure`` in their reading."""
    buffers, clock, readings = _Buffers(task), RealClock(), tuple(map(copy, task.readings))
    limit = None if task.rate_bytes_s is None else RateLimit(task.rate_bytes_s, clock)
    for reading in readings:
        reading.write = partial(buffers.write, reading.partition)
    try:
        with closing(Connection(task.address, PATIENT, clock, dial)) as connection:
            reader = open_reader(connection, clock, limit.pay if limit else lambda _: None, limit)
            for _ in (reader.finish if task.is_last else reader.read_on)(readings, task.goals):
                yield from buffers.pieces_from(PIECE_BYTES)
    except (OSError, HarnessError) as error:
        for reading in readings:
            reading.failure = reading.failure or str(error)
    yield from buffers.pieces_from(0)
    for reading in readings:
        yield buffers.rows({"reading": pickle.dumps(reading)}, reading.partition)
