"""Each replica's exposure to the fault: the facts that a verdict of ``clean`` requires.

There is one row for every critical tombstone or marker (see `Critical`) and every replica of its partition. The facts
come from the history, from both snapshots and from the timed observations; `harness.judge.verdict` decides which
combination of facts gives ``clean``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.parse import FETCH
from checkers.evidence.tables import PARTITION, REPLICA, colocated, digest_share
from harness.plan.scenario import Critical, Phase
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged

CRITICAL = [*PARTITION, "kind", "payload_offset", "critical_offset"]

FLAGS = ("had_payload", "has_payload", "held_critical", "held_after", "same_directory", "was_served")


def criticals(judged: Judged) -> DataFrame:
    """Return CRITICAL rows; ``critical_offset`` is null for a marker that was never seen on any replica.

    ``payload_offset`` is the record that the tombstone deletes, or the transaction's first record.
    """
    payload = judged.evidence.history.where("part = 'payload' AND type = 'ok'")
    written = judged.written.select(*PARTITION, "offset", "key", "producer_id")
    deletes = payload.where((f.col("phase") == Phase.OUTAGE) & f.col("tombstone")).select(
        *PARTITION, f.encode("key", "utf-8").alias("key"), f.col("offset").alias("critical_offset")
    )
    tombstones = (
        deletes.join(written.drop("producer_id"), [*PARTITION, "key"])
        .where("offset < critical_offset")
        .groupBy(*PARTITION, "critical_offset")
        .agg(f.max("offset").alias("payload_offset"))
        .withColumn("kind", f.lit(str(Critical.TOMBSTONE)))
    )
    ended = payload.where(f.col("f").isin("commit", "abort") & (f.col("phase") == Phase.OUTAGE)).select(
        "run", "transactional_id", "txn"
    )
    first_records = (
        payload.where(f.col("f") == "produce")
        .join(ended, ["run", "transactional_id", "txn"], "left_semi")
        .groupBy(*PARTITION, "transactional_id", "txn")
        .agg(f.min("offset").alias("payload_offset"))
        .drop("transactional_id", "txn")
    )
    producers = written.select(*PARTITION, f.col("offset").alias("payload_offset"), "producer_id")
    markers = (
        first_records.join(producers, [*PARTITION, "payload_offset"], "left")
        .join(judged.markers.drop("outcome"), [*PARTITION, "producer_id"], "left")
        .groupBy(*PARTITION, "payload_offset")
        .agg(
            f.min(f.when(f.col("marker_offset") > f.col("payload_offset"), f.col("marker_offset"))).alias(
                "critical_offset"
            )
        )
        .withColumn("kind", f.lit(str(Critical.MARKER)))
    )
    return tombstones.select(*CRITICAL).unionByName(markers.select(*CRITICAL))


def check(judged: Judged) -> DataFrame:
    """Return CRITICAL, broker and the facts about that replica.

    had_payload, held_critical: from its files before the return. has_payload, held_after: from its files at the
    end. log_end_before, log_end_after, high_watermark_after. seen_there, removed_at_ms: from observations, the
    first time. cleaned_past: before the return its cleaner had passed the critical offset, by its checkpoint or by
    the broker's answer (`harness.systems.Control.compaction`). passed: the cleaner had done so after the delete
    horizon, which a batch within the cleaned range that is younger than the horizon proves. same_directory: the log
    directory's id did not change. was_served: the log was read over the wire at the end; served_digest: equal for equal
    logs (`harness.brokers.segments.batches.batch_digest`).
    """
    evidence = judged.evidence
    critical = colocated(criticals(judged))
    before, after = _offsets(evidence.before_return), _offsets(evidence.final)
    rows = (
        critical.join(judged.replicas.select(*REPLICA, "log_end", "high_watermark"), PARTITION)
        .withColumnRenamed("log_end", "log_end_after")
        .withColumnRenamed("high_watermark", "high_watermark_after")
    )
    at_payload = before.select(*REPLICA, f.col("at").alias("payload_offset"), f.lit(True).alias("had_payload"))
    has_payload = after.select(*REPLICA, f.col("at").alias("payload_offset"), f.lit(True).alias("has_payload"))
    at_critical = before.select(
        *REPLICA, f.col("at").alias("critical_offset"), f.lit(True).alias("held_critical"), "horizon_ms"
    )
    still = after.select(*REPLICA, f.col("at").alias("critical_offset"), f.lit(True).alias("held_after"))
    ends = evidence.before_return.groupBy(*REPLICA).agg((f.max("last_offset") + 1).alias("log_end_before"))
    return (
        colocated(rows)
        .join(ends, REPLICA, "left")
        .join(at_payload, [*REPLICA, "payload_offset"], "left")
        .join(has_payload, [*REPLICA, "payload_offset"], "left")
        .join(at_critical, [*REPLICA, "critical_offset"], "left")
        .join(still, [*REPLICA, "critical_offset"], "left")
        .join(colocated(_seen(judged)), [*REPLICA, "critical_offset"], "left")
        .join(_cleaned_until(judged), REPLICA, "left")
        .join(_directories(judged), REPLICA, "left")
        .join(_served(judged), REPLICA, "left")
        .withColumn("cleaned_past", f.coalesce(f.col("cleaner_offset") > f.col("critical_offset"), f.lit(False)))
        .withColumn(
            "passed",
            f.col("cleaned_past") & f.coalesce(f.col("youngest_ms") >= f.col("horizon_ms"), f.lit(False)),
        )
        .select(
            *CRITICAL,
            "broker",
            *(
                f.coalesce(name, f.lit(False)).alias(name)
                for name in (
                    "had_payload",
                    "has_payload",
                    "held_critical",
                    "held_after",
                    "same_directory",
                    "was_served",
                )
            ),
            f.col("seen_at_ms").isNotNull().alias("seen_there"),
            "removed_at_ms",
            "cleaned_past",
            "passed",
            "log_end_before",
            "log_end_after",
            "high_watermark_after",
            "served_digest",
        )
    )


def _offsets(entries: DataFrame) -> DataFrame:
    """Return REPLICA, ``at``, horizon_ms: the offsets of all records and of all markers that are not emptied."""
    return entries.where("offset IS NOT NULL OR marker IS NOT NULL").select(
        *REPLICA, f.coalesce("offset", "last_offset").alias("at"), "horizon_ms"
    )


def _seen(judged: Judged) -> DataFrame:
    """Return REPLICA, critical_offset, ``seen_at_ms``, ``removed_at_ms`` from the observations."""
    observations = judged.evidence.observations

    def first_time(column: str, name: str, kinds: tuple[str, ...]) -> DataFrame:
        return (
            observations.select(*REPLICA, "time_ms", f.explode(column).alias("seen"))
            .where(f.col("seen.kind").isin(*kinds))
            .groupBy(*REPLICA, f.col("seen.offset").alias("critical_offset"))
            .agg(f.min("time_ms").alias(name))
        )

    # A marker that was emptied first is removed as an empty batch; an empty batch alone is no sight of a marker.
    whole = ("tombstone", "commit", "abort")
    return first_time("appeared", "seen_at_ms", whole).join(
        first_time("removed", "removed_at_ms", (*whole, "empty")), [*REPLICA, "critical_offset"], "full"
    )


def _cleaned_until(judged: Judged) -> DataFrame:
    """Return REPLICA, ``cleaner_offset`` before the return, ``youngest_ms``: the latest time below it."""
    checkpoints = judged.evidence.states.where(f.col("snapshot") == BEFORE_RETURN).select(*REPLICA, "cleaner_offset")
    cleaned = judged.evidence.before_return.join(checkpoints, REPLICA).where("last_offset < cleaner_offset")
    youngest = cleaned.groupBy(*REPLICA).agg(f.max("max_timestamp_ms").alias("youngest_ms"))
    return checkpoints.join(colocated(youngest), REPLICA, "left")


def _directories(judged: Judged) -> DataFrame:
    """Return REPLICA, ``same_directory``: whether both snapshots have the same log directory id."""
    ids = judged.evidence.states.where("directory_id IS NOT NULL")
    return ids.groupBy(*REPLICA).agg(
        f.expr("size(collect_set(directory_id)) = 1 AND size(collect_set(snapshot)) = 2").alias("same_directory")
    )


def _served(judged: Judged) -> DataFrame:
    """Return REPLICA, ``was_served``, ``served_digest`` of batches that were fetched after the rejoin."""
    return (
        judged.evidence.at(AFTER_REJOIN, FETCH)
        .groupBy(*REPLICA)
        .agg(
            f.lit(True).alias("was_served"),
            f.bit_xor(f.when(f.col("first_in_batch"), digest_share())).alias("served_digest"),
        )
    )
