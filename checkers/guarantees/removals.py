"""Observed removals from replicas during cleaning, and an upper bound of the age of each removed record.

A removal is judged only where nothing but compaction can have caused it: the offset was below this replica's high
watermark before the removal (so it was not truncated, except in an unclean election), and after the removal the log
still started at or before the offset and ended after it.

The age of an offset is at most the time since the latest invocation of an acknowledged produce at or below that offset.
These times are by the clock of the harness's host, and brokers use their own clocks. A constant lead of a broker's
clock does not change the retention of tombstones and markers, which begins and ends on that clock, but a jump does. For
``min.compaction.lag.ms``, which is compared with clients' times, any lead matters. Where a run sets clocks forward, no
guarantee is judged by times (`checkers.evidence.parse.retentions_ms`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated
from checkers.replay.batch_outcomes import ABORTED
from checkers.replay.truth import txn_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


@dataclass(frozen=True)
class ObservedRemovals:
    """The input of the guarantees; only for runs, which have a history of clients.

    ``acks``: PARTITION, offset, key, tombstone, txn (as in record headers), ``invoked_ms``, ``invoked_at``,
    ``acked_at`` (lines of the history) of each acknowledged record.
    ``sightings``: REPLICA, offset, kind, producer_id, ``is_gone``, time_ms, log_start, log_end: the appearances and
    removals that the observer saw, at offsets below the replica's high watermark.
    ``removals``: the removals from inside the log, with the facts about the offset: key, tombstone, truth,
    ``last_of_key`` (the last offset of the key that is not known to be aborted), ``goes_on`` (see
    `truth.written_records`), ``known_to`` (the end of the known offsets from this one on), ``age_ms`` (an upper bound),
    ``delete_retention_ms`` and ``min_compaction_lag_ms``. Removals of unknown offsets are left out.
    """

    judged: Judged
    acks: DataFrame
    sightings: DataFrame
    removals: DataFrame


def observed_removals(judged: Judged) -> ObservedRemovals:
    """Derive the observed removals from the evidence of a run."""
    acks = checkpointed(_acks(judged))
    sightings = checkpointed(_sightings(judged))
    return ObservedRemovals(judged, acks, sightings, checkpointed(_removals(judged, acks, sightings)))


def _acks(judged: Judged) -> DataFrame:
    facts = {
        "offset": f.col("offset"),
        "key": f.col("key"),
        "tombstone": f.col("tombstone"),
        "txn": txn_header(),
    }
    return (
        judged.evidence.history.groupBy("op", *PARTITION)
        .agg(
            *(f.first(column, ignorenulls=True).alias(name) for name, column in facts.items()),
            f.min("time_ms").alias("invoked_ms"),
            f.min("index").alias("invoked_at"),
            f.max("index").alias("acked_at"),
        )
        # Only the acknowledgement of a record has an offset.
        .where("offset IS NOT NULL")
        .drop("op")
    )


def _sightings(judged: Judged) -> DataFrame:
    in_time = Window.partitionBy(*REPLICA).orderBy("time_ms")
    before = f.max("high_watermark").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    observations = judged.evidence.observations.withColumn("replicated_before", before)
    columns = [*REPLICA, "time_ms", "log_start", "log_end", "high_watermark", "replicated_before"]
    gone = observations.select(*columns, f.explode("removed").alias("seen"), f.lit(True).alias("is_gone"))
    there = observations.select(*columns, f.explode("appeared").alias("seen"), f.lit(False).alias("is_gone"))
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
        colocated(gone.join(colocated(_written(judged, acks)), ["offset", *PARTITION]))
        .join(judged.evidence.settings.drop("problem"), "run")
        .withColumn("age_ms", f.col("time_ms") - f.col("since_ms"))
        .where("age_ms IS NOT NULL")
    )


def _written(judged: Judged, acks: DataFrame) -> DataFrame:
    """Return the facts about every known offset: records from clients or logs, markers from any log or the observer."""
    begun = acks.groupBy("offset", *PARTITION).agg(f.max("invoked_ms").alias("invoked_ms"))
    records = judged.written.select(*PARTITION, "offset", "key", "tombstone", "truth", "goes_on")
    markers = judged.markers.select(*PARTITION, f.col("marker_offset").alias("offset")).distinct()
    upwards = Window.partitionBy(*PARTITION).orderBy("offset")
    contiguous = Window.partitionBy("gap_number", *PARTITION)
    counts = ~f.col("truth").eqNullSafe(ABORTED)
    return (
        colocated(records.unionByName(markers, allowMissingColumns=True))
        .join(colocated(begun), ["offset", *PARTITION], "left")
        .withColumn("since_ms", f.max("invoked_ms").over(upwards))
        .withColumn("gap_number", f.col("offset") - f.dense_rank().over(upwards))
        .withColumn("known_to", f.max("offset").over(contiguous) + 1)
        .withColumn("last_of_key", f.max(f.when(counts, f.col("offset"))).over(Window.partitionBy("key", *PARTITION)))
        .drop("invoked_ms", "gap_number")
    )
