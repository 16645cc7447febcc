"""Each replica's exposure to the fault: the facts about critical records that a verdict of ``clean`` requires."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.parse import FETCH
from checkers.evidence.tables import PARTITION, REPLICA, Evidence, colocated, digest_share
from checkers.replay.judged import Judged
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.schedules.scenario import Critical, Phase

CRITICAL = [*PARTITION, "kind", "payload_offset", "critical_offset"]
FLAGS = (
    "had_payload", "has_payload", "held_critical", "held_after", "seen_there", "same_directory", "led", "was_served"
)  # fmt: skip


def criticals(judged: Judged) -> DataFrame:
    """Return CRITICAL rows; ``critical_offset`` is null for a marker that was never seen on any replica.

    ``payload_offset`` is the record that the tombstone deletes, or the transaction's first record. Of several records
    with the tombstone's key it is the payload's last one before the outage: the absent broker has no later record.
    """
    payload = judged.evidence.history.where("part = 'payload' AND type = 'ok'")
    during_outage = payload.where(f.col("phase") == Phase.OUTAGE)
    deletes = during_outage.where("tombstone").selectExpr(*PARTITION, "key", "offset AS critical_offset")
    in_time = payload.where(f.col("phase") == Phase.BEFORE).select(*PARTITION, "key", "offset")
    tombstones = (
        deletes.join(in_time, ["key", *PARTITION])
        .groupBy("critical_offset", *PARTITION)
        .agg(f.max("offset").alias("payload_offset"))
        .withColumn("kind", f.lit(str(Critical.TOMBSTONE)))
    )
    transaction = ["run", "transactional_id", "txn"]
    first_records = (
        payload.where("f = 'produce'")
        .join(during_outage.where("f IN ('commit', 'abort')").select(*transaction), transaction, "left_semi")
        .groupBy("transactional_id", "txn", *PARTITION)
        .agg(f.min("offset").alias("payload_offset"))
    )
    ends = judged.written.selectExpr(*PARTITION, "offset AS payload_offset", "first_marker AS critical_offset")
    kind = f.lit(str(Critical.MARKER))
    markers = first_records.join(ends, ["payload_offset", *PARTITION], "left").withColumn("kind", kind)
    return tombstones.select(*CRITICAL).unionByName(markers.select(*CRITICAL))


def check(judged: Judged) -> DataFrame:
    """Return CRITICAL, broker and the facts about that replica.

    had_payload, held_critical: from its files before the return. has_payload, held_after: from its files at the end.
    log_end_before, log_end_after, high_watermark_after. seen_there, removed_at_ms: from observations, the first time.
    cleaned_past: before the return its cleaner had passed the critical offset, by its checkpoint or by the broker's
    answer (`harness.systems.Control.compaction`). passed: the cleaner did so after the delete horizon, as a younger
    batch in the cleaned range proves. same_directory: the log directory's id did not change. led: the broker led the
    partition at both snapshots, in one leader epoch, so that it served every copy between them. was_served: the log was
    read over the wire at the end; served_digest: as `harness.broker_files.segments.batches.batch_digest`.
    """
    evidence = judged.evidence
    here = _presence(evidence)
    at_payload = here.selectExpr(*REPLICA, "at AS payload_offset", "before AS had_payload", "after AS has_payload")
    critical = ("at AS critical_offset", "before AS held_critical", "after AS held_after", "horizon_ms")
    ends = judged.replicas.selectExpr(*REPLICA, "log_end AS log_end_after", "high_watermark AS high_watermark_after")
    ends_before = evidence.before_return.groupBy(*REPLICA).agg((f.max("last_offset") + 1).alias("log_end_before"))
    return (
        colocated(colocated(criticals(judged)).join(ends, PARTITION))
        .join(ends_before, REPLICA, "left")
        .join(at_payload, ["payload_offset", *REPLICA], "left")
        .join(here.selectExpr(*REPLICA, *critical), ["critical_offset", *REPLICA], "left")
        .join(_seen(evidence), ["critical_offset", *REPLICA], "left")
        .join(_cleaned_until(evidence), REPLICA, "left")
        .join(_in_both(evidence, "directory_id IS NOT NULL", "directory_id", "same_directory"), REPLICA, "left")
        .join(_in_both(evidence, "leader = broker", "leader_epoch", "led"), REPLICA, "left")
        .join(_served(evidence), REPLICA, "left")
        .withColumn("cleaned_past", f.expr("coalesce(cleaner_offset > critical_offset, false)"))
        .selectExpr(
            *(*CRITICAL, "broker"),
            *(f"coalesce({name}, false) AS {name}" for name in FLAGS),
            *("removed_at_ms", "cleaned_past"),
            "cleaned_past AND coalesce(youngest_ms >= horizon_ms, false) AS passed",
            *("log_end_before", "log_end_after", "high_watermark_after", "served_digest"),
        )
    )


def _presence(evidence: Evidence) -> DataFrame:
    """Return REPLICA, ``at``, ``before``, ``after`` (whether the snapshot has it), ``horizon_ms`` before the return."""
    is_before, is_after = f.col("snapshot") == BEFORE_RETURN, f.col("snapshot") == AFTER_REJOIN
    return (
        evidence.entries.where("judged AND (offset IS NOT NULL OR marker IS NOT NULL)")
        .groupBy(*REPLICA, f.coalesce("offset", "last_offset").alias("at"))
        .agg(
            f.bool_or(is_before).alias("before"),
            f.bool_or(is_after).alias("after"),
            f.max(f.when(is_before, f.col("horizon_ms"))).alias("horizon_ms"),
        )
    )


def _seen(evidence: Evidence) -> DataFrame:
    """Return REPLICA, critical_offset, ``seen_there``, ``removed_at_ms`` (the first time) from the observations."""
    # A marker may be emptied before it is removed. An empty batch alone does not show a marker.
    kinds = ("tombstone", *MARKERS)
    appeared = evidence.appeared.where(f.col("kind").isin(*kinds)).selectExpr(*REPLICA, "offset", "true AS seen_there")
    removed = (
        evidence.observations.select(*REPLICA, "time_ms", f.explode("removed").alias("seen"))
        .where(f.col("seen.kind").isin(*kinds, "empty"))
        .selectExpr(*REPLICA, "seen.offset", "time_ms AS removed_at_ms")
    )
    return (
        colocated(appeared.unionByName(removed, allowMissingColumns=True))
        .groupBy(*REPLICA, f.col("offset").alias("critical_offset"))
        .agg(f.bool_or("seen_there").alias("seen_there"), f.min("removed_at_ms").alias("removed_at_ms"))
    )


def _cleaned_until(evidence: Evidence) -> DataFrame:
    """Return REPLICA, ``cleaner_offset`` before the return, ``youngest_ms``: the latest time below it."""
    checkpoints = evidence.states.where(f.col("snapshot") == BEFORE_RETURN).select(*REPLICA, "cleaner_offset")
    cleaned = evidence.before_return.join(checkpoints, REPLICA).where("last_offset < cleaner_offset")
    youngest = cleaned.groupBy(*REPLICA).agg(f.max("max_timestamp_ms").alias("youngest_ms"))
    return checkpoints.join(colocated(youngest), REPLICA, "left")


def _in_both(evidence: Evidence, condition: str, column: str, name: str) -> DataFrame:
    """Return REPLICA, ``name``: whether the condition holds at both snapshots, with the same value of the column."""
    return (
        evidence.states.where(condition)
        .groupBy(*REPLICA)
        .agg(f.expr(f"size(collect_set({column})) = 1 AND size(collect_set(snapshot)) = 2").alias(name))
    )


def _served(evidence: Evidence) -> DataFrame:
    """Return REPLICA, ``was_served``, ``served_digest`` of batches that were fetched after the rejoin."""
    return (
        evidence.entries.where((f.col("snapshot") == AFTER_REJOIN) & (f.col("source") == FETCH))
        .groupBy(*REPLICA)
        .agg(
            f.lit(True).alias("was_served"),
            f.bit_xor(f.when(f.col("first_in_batch"), digest_share())).alias("served_digest"),
        )
    )
