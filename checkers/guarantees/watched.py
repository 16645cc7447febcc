"""What was seen of replicas while they were cleaned, and the least that is known of when each record was written.

A removal is judged only where nothing but compaction can have caused it: this replica had itself said before that the
offset was below its high watermark (it is not truncated then, but for an unclean election), and when it was gone its
log still went on past the offset and started at or before it.

Of an offset's age only an upper bound is needed. No record is written before its client begins to produce it, and
what lies at a higher offset is written later. So it is no older than the latest beginning of any acknowledged record
at or below it. All these times are of the harness's host. Brokers go by their own clocks: that one is ahead of ours
all along changes nothing for tombstones and markers, whose time begins and ends on it, but a jump does, and for
``min.compaction.lag.ms``, which is compared with clients' times, any advance does. Where a run puts clocks forward,
nothing is judged by them (`checkers.evidence.retentions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated
from checkers.replay.batch_outcomes import ABORTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


@dataclass(frozen=True)
class Watched:
    """What guarantees are checked with; all of it about runs whose clients are known.

    ``acks``: PARTITION, offset, key, tombstone, txn (as in record headers), ``invoked_ms``, ``invoked_at``,
    ``acked_at`` (lines of the history) of each acknowledged record.
    ``sightings``: REPLICA, offset, kind, producer_id, ``is_gone``, time_ms, log_start, log_end: what the observer saw
    appear and go, where the replica knew by then that it is below its high watermark.
    ``removals``: those that are gone from inside the log, with what is known of them: key, tombstone, truth,
    ``last_of_key`` (the last offset of the key that is not known to be aborted), ``goes_on``, ``known_to`` (up to
    there, every offset from this one on is known), ``age_ms`` (no older than that), ``delete_retention_ms`` and
    ``min_compaction_lag_ms``. What is known of nobody is not among them.
    """

    judged: Judged
    acks: DataFrame
    sightings: DataFrame
    removals: DataFrame


def watch(judged: Judged) -> Watched:
    """Derive it."""
    acks = checkpointed(_acks(judged))
    sightings = checkpointed(_sightings(judged))
    return Watched(judged, acks, sightings, checkpointed(_removals(judged, acks, sightings)))


def _acks(judged: Judged) -> DataFrame:
    header = f.concat("transactional_id", f.lit("/"), f.col("txn").cast("string"))
    facts = {"offset": f.col("offset"), "key": f.encode("key", "utf-8"), "tombstone": f.col("tombstone"), "txn": header}
    return (
        judged.evidence.history.groupBy(*PARTITION, "op")
        .agg(
            *(f.first(column, ignorenulls=True).alias(name) for name, column in facts.items()),
            f.min("time_ms").alias("invoked_ms"),
            f.min("index").alias("invoked_at"),
            f.max("index").alias("acked_at"),
        )
        # An offset comes with an acknowledgement of a record, and with nothing else.
        .where("offset IS NOT NULL")
        .drop("op")
    )


def _sightings(judged: Judged) -> DataFrame:
    in_time = Window.partitionBy(*REPLICA).orderBy("time_ms")
    before = f.max("high_watermark").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    looks = judged.evidence.observations.withColumn("replicated_before", before)
    columns = [*REPLICA, "time_ms", "log_start", "log_end", "high_watermark", "replicated_before"]
    gone = looks.select(*columns, f.explode("removed").alias("seen"), f.lit(True).alias("is_gone"))
    there = looks.select(*columns, f.explode("appeared").alias("seen"), f.lit(False).alias("is_gone"))
    return (
        colocated(there.unionByName(gone))
        .select(
            *columns,
            "is_gone",
            f.col("seen.offset").alias("offset"),
            f.col("seen.kind").alias("kind"),
            f.when(~f.col("is_gone"), f.col("seen.producer_id")).alias("producer_id"),
        )
        .where(
            f.col("offset") < f.when(f.col("is_gone"), f.col("replicated_before")).otherwise(f.col("high_watermark"))
        )
        .drop("high_watermark", "replicated_before")
    )


def _removals(judged: Judged, acks: DataFrame, sightings: DataFrame) -> DataFrame:
    gone = sightings.where("is_gone AND log_start <= offset AND offset < log_end").select(
        *REPLICA, "offset", "kind", "time_ms", "log_end"
    )
    return (
        colocated(gone.join(colocated(_written(judged, acks)), [*PARTITION, "offset"]))
        .join(judged.evidence.settings.drop("problem"), "run")
        .withColumn("age_ms", f.col("time_ms") - f.col("since_ms"))
        .where("age_ms IS NOT NULL")
    )


def _written(judged: Judged, acks: DataFrame) -> DataFrame:
    """Return what is known of every offset: records by client or log, markers by any log or the observer."""
    begun = acks.groupBy(*PARTITION, "offset").agg(f.max("invoked_ms").alias("invoked_ms"))
    records = judged.written.select(*PARTITION, "offset", "key", "tombstone", "truth", "goes_on")
    markers = judged.markers.select(*PARTITION, f.col("marker_offset").alias("offset")).distinct()
    upwards = Window.partitionBy(*PARTITION).orderBy("offset")
    stretch = Window.partitionBy(*PARTITION, "stretch")
    counts = ~f.col("truth").eqNullSafe(ABORTED)
    return (
        colocated(records.unionByName(markers, allowMissingColumns=True))
        .join(colocated(begun), [*PARTITION, "offset"], "left")
        .withColumn("since_ms", f.max("invoked_ms").over(upwards))
        .withColumn("stretch", f.col("offset") - f.dense_rank().over(upwards))
        .withColumn("known_to", f.max("offset").over(stretch) + 1)
        .withColumn("last_of_key", f.max(f.when(counts, f.col("offset"))).over(Window.partitionBy(*PARTITION, "key")))
        .drop("invoked_ms", "stretch")
    )
