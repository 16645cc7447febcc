"""Reads replicas in Spark's tasks: executors connect to the brokers, and store the batches on their own disks.

The data source ``kafka-replicas`` reads twice: to the bounds, and from there on to the high watermarks. What an
executor stored is lost with the executor, and cannot be read again: by then, the cleaner may have removed other
records. Spark then fails every job that needs the data (`harness.spark.jobs`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from pyspark import StorageLevel

from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.reading import ReplicaReading
from harness.audit.live.source import NAME, PIECES_TABLE, divided, register
from harness.audit.live.spool import Replica, highest_watermarks
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.spark.jobs import describe, failures_reported, stages_reported
from harness.spark.stored_segment import STORED_SEGMENTS, StoredSegment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

StoredReplica: TypeAlias = "dict[int, Path]"
"""The paths of a replica's stored segments by base offset, in order."""


@dataclass(frozen=True)
class ExecutorReader:
    """Reads with the executors of a session. ``plan``: a file to write on the driver's host.

    ``rate_bytes_s``: of all executors together. ``report``: as `stages_reported`.
    """

    session: SparkSession
    plan: Path
    rate_bytes_s: int | None
    report: Callable[[str, int, int], None]

    @failures_reported()
    def read(
        self, cluster: AuditedCluster, readings: Mapping[Replica, ReplicaReading]
    ) -> tuple[dict[Replica, ReplicaReading], dict[Replica, StoredReplica]]:
        """Read to the bounds, then to the high watermarks; return the readings and the stored segments.

        A replica that cannot be read gets a ``failure``. Raises as `failures_reported`.
        """
        register(self.session)
        stored: dict[Replica, StoredReplica] = {replica: {} for replica in readings}
        bounds = {reading.partition: reading.bound for reading in readings.values()}
        first, readings = self._scan(cluster, readings, bounds, stored, is_last=False)
        ends = highest_watermarks(cluster, bounds)
        last, readings = self._scan(cluster, readings, ends, stored, is_last=True)
        pieces = first.unionAll(last).where("data IS NOT NULL")
        pieces.select("number", "data").createOrReplaceTempView(STORED_SEGMENTS)
        return readings, stored

    def _scan(
        self,
        cluster: AuditedCluster,
        readings: Mapping[Replica, ReplicaReading],
        goals: Mapping[TopicPartition, int],
        stored: Mapping[Replica, StoredReplica],
        *,
        is_last: bool,
    ) -> tuple[DataFrame, dict[Replica, ReplicaReading]]:
        tasks = self.session.sparkContext.defaultParallelism
        plan = divided(
            readings, goals, cluster.client.brokers, tasks=tasks, rate_bytes_s=self.rate_bytes_s, is_last=is_last
        )
        describe(self.session, f"read {len(readings)} replicas {'to their ends' if is_last else 'to their bounds'}")
        self.plan.write_bytes(pickle.dumps(plan))
        source = self.session.read.format(NAME).option("table", PIECES_TABLE).option("plan", str(self.plan))
        if (security := cluster.client.brokers[plan[0].broker].security) is not None:
            source = source.option("command.config", str(Path(security.source).absolute()))
        with stages_reported(self.session, self.report):
            pieces = source.load().localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
        rows = pieces.selectExpr("*", "length(data) AS size_bytes").drop("data").collect()
        read: dict[Replica, ReplicaReading] = {}
        for row in sorted(rows, key=lambda row: row["number"] or 0):
            replica = row["broker"], (row["topic"], row["partition"])
            if row["reading"] is not None:
                read[replica] = pickle.loads(row["reading"])  # noqa: S301  (of this audit's tasks)
                continue
            name = f"broker {row['broker']}, {name_of(replica[1])} at {row['base_offset']}"
            segment = StoredSegment(row["number"], name, row["size_bytes"])
            stored[replica][row["base_offset"]] = cast("Path", segment)
        return pieces, read
