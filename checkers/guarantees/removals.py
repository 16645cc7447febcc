"""Observed removals from replicas during cleaning, the age of each removed record, and the guarantees about both.

A removal is judged only where nothing but compaction can have caused it: the offset was below this replica's high
watermark before the removal (so it was not truncated, except in an unclean election), and after the removal the log
still started at or before the offset and ended after it. No checker sees removals between two observations, or from a
broker that was down.

The age of an offset is at most the time since the latest invocation of an acknowledged produce at or below that offset,
by the clock of the harness's host. A constant lead of a broker's clock does not change the retention of tombstones and
markers, which begins and ends on that clock, but a jump does. For ``min.compaction.lag.ms``, which is compared with
clients' times, any lead matters. Where a run sets clocks forward, nothing is judged by times (`parse.retentions_ms`).

**tombstones**: a tombstone can be read for at least ``delete.retention.ms`` after it was written. Verifies every
tombstone that the observer saw removed. The retention begins with the first cleaning, after the write, so that a
correct replica never removes a tombstone earlier. A violation is reported only where it is proven: the tombstone was
committed, and this replica cannot have had a later record of its key, because of which compaction removes a tombstone
at once. So every offset from the tombstone to the log end at that time must be known. Does not verify: tombstones of
clients outside the run; that a tombstone is ever removed; tombstones that a replica never had (tombstone-divergence).

**min-compaction-lag**: no record younger than ``min.compaction.lag.ms`` is compacted. Verifies every entry (value,
tombstone, marker, emptied batch) that the observer saw removed. Does not verify: entries whose time of writing is
unknown; a batch that is emptied too early, until the rest of the batch is removed. The default, 0, guarantees nothing.

**control-batches**: a COMMIT or ABORT is removed after its transaction's data, not too early, and is emptied for good.
Verifies, on each replica that once had a marker below its high watermark: where the marker is gone at the end, or its
batch emptied, no data batch of its transaction is left, emptied batches included (no batch of its producer before the
marker, without another marker of that producer in between in this log); the marker was not removed before it was
``delete.retention.ms`` old; where the batch was emptied, it does not have a marker again at the end, unless the log
directory changed, as a log copied from another replica may still have the marker. Does not verify: the type of a marker
(see *offsets*); that an emptied batch ends no transaction (see `doubts`); that a marker or an emptied batch is ever
removed; the expiration of producers; replicas that never had the marker, which the anomalies are about.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 1 and 4, ``delete.retention.ms`` and
``min.compaction.lag.ms``; `Cleaner.shouldRetainRecord`, `Cleaner.shouldDiscardBatch` and KIP-534 (the delete horizon);
`CleanedTransactionMetadata.onControlBatchRead` (a marker may be removed if the pass read no batch of its transaction);
`LogCleanerManager.cleanableOffsets`: nothing is cleaned from the first segment with a younger record on.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated
from checkers.finding import results, sentence
from checkers.replay.judged import Judged
from checkers.replay.truth import txn_header
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import BEFORE_RETURN


@dataclass(frozen=True)
class ObservedRemovals:
    """The input of the guarantees; only for runs, which have a history of clients.

    ``acks``: PARTITION, offset, key, tombstone, txn (as in record headers), ``invoked_ms``, ``invoked_at``,
    ``acked_at`` (lines of the history) of each acknowledged record. ``sightings``: REPLICA, offset, kind, producer_id,
    ``is_gone``, time_ms, log_start, log_end of what the observer saw, below the replica's high watermark.
    ``removals``: those from inside the log, with the facts about the known offset: key, tombstone, truth,
    ``last_of_key`` (the last offset of the key that is not known to be aborted), ``goes_on`` (see `written_records`),
    ``known_to`` (the end of the known offsets from this one on), ``age_ms``, and the settings of `SETTINGS`.
    """

    judged: Judged
    acks: DataFrame
    sightings: DataFrame
    removals: DataFrame


def observed_removals(judged: Judged) -> ObservedRemovals:
    """Derive the observed removals from the evidence of a run."""
    acks = checkpointed(
        judged.evidence.history.groupBy("op", *PARTITION)
        .agg(
            *(f.first(name, ignorenulls=True).alias(name) for name in ("offset", "key", "tombstone")),
            f.first(txn_header(), ignorenulls=True).alias("txn"),
            f.min("time_ms").alias("invoked_ms"),
            f.min("index").alias("invoked_at"),
            f.max("index").alias("acked_at"),
        )
        # Only the acknowledgement of a record has an offset.
        .where("offset IS NOT NULL")
        .drop("op")
    )
    sightings = checkpointed(_sightings(judged))
    return ObservedRemovals(judged, acks, sightings, checkpointed(_removals(judged, acks, sightings)))


def _sightings(judged: Judged) -> DataFrame:
    in_time = Window.partitionBy(*REPLICA).orderBy("time_ms")
    before = f.max("high_watermark").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    observations = judged.evidence.observations.withColumn("replicated_before", before)
    columns = [*REPLICA, "time_ms", "log_start", "log_end", "high_watermark", "replicated_before"]
    appeared, removed = (
        observations.select(*columns, f.explode(name).alias("seen"), f.lit(name == "removed").alias("is_gone"))
        for name in ("appeared", "removed")
    )
    return (
        colocated(appeared.unionByName(removed))
        .selectExpr(
            *columns, "is_gone", "seen.offset", "seen.kind", "if(is_gone, NULL, seen.producer_id) AS producer_id"
        )
        .where("offset < if(is_gone, replicated_before, high_watermark)")
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
    markers = judged.markers.selectExpr(*PARTITION, "marker_offset AS offset").distinct()
    upwards = Window.partitionBy(*PARTITION).orderBy("offset")
    contiguous, of_key = (Window.partitionBy(name, *PARTITION) for name in ("gap_number", "key"))
    not_aborted = f.expr("if(truth <=> 'aborted', NULL, offset)")
    return (
        colocated(records.unionByName(markers, allowMissingColumns=True))
        .join(colocated(begun), ["offset", *PARTITION], "left")
        .withColumn("since_ms", f.max("invoked_ms").over(upwards))
        .withColumn("gap_number", f.col("offset") - f.dense_rank().over(upwards))
        .withColumn("known_to", f.max("offset").over(contiguous) + 1)
        .withColumn("last_of_key", f.max(not_aborted).over(of_key))
        .drop("invoked_ms", "gap_number")
    )


def check_tombstones(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    rows = observed.removals.where(
        "tombstone AND last_of_key = offset AND NOT goes_on AND log_end <= known_to AND delete_retention_ms IS NOT NULL"
        " AND truth = 'committed'"
    )
    return results(
        rows,
        guarantee,
        violation="age_ms < delete_retention_ms",
        explanation=sentence(
            "the delete of key {key!r} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "delete.retention.ms is {delete_retention_ms}"
        ),
        witness="age_ms, delete_retention_ms, time_ms",
    )


def check_compaction_lag(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    return results(
        observed.removals.where("min_compaction_lag_ms > 0"),
        guarantee,
        violation="age_ms < min_compaction_lag_ms",
        explanation=sentence(
            "the {kind} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "min.compaction.lag.ms is {min_compaction_lag_ms}"
        ),
        witness="age_ms, min_compaction_lag_ms, time_ms",
    )


def check_control_batches(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`; the offset is the marker's."""
    rows = _removed_before_data(observed).unionByName(_removed_too_early(observed)).unionByName(_refilled(observed))
    why = f.col("why")
    return results(colocated(rows), guarantee, violation="why IS NOT NULL", explanation=why, witness="why AS reason")


def _removed_before_data(observed: ObservedRemovals) -> DataFrame:
    judged = observed.judged
    had = (
        observed.sightings.where(~f.col("is_gone") & f.col("kind").isin(*MARKERS))
        .select(*REPLICA, "offset", "producer_id")
        .unionByName(
            _before(observed)
            .where(f.col("marker").isin(*MARKERS))
            .selectExpr(*REPLICA, "last_offset AS offset", "producer_id")
        )
    )
    data = judged.beliefs.where("transactional")
    data = data.selectExpr(*REPLICA, "producer_id", "last_offset AS data_at", "decided_by")
    is_left = f.expr("data_at < offset AND (decided_by IS NULL OR decided_by > offset)")
    why = sentence(
        "the marker at offset {offset} was removed, and the batch that ends at offset {left_at}, of its transaction "
        "(producer {producer_id}), is still there"
    )
    return (
        colocated(had)
        .join(_full_at_end(observed), ["offset", *REPLICA], "left_anti")
        .join(judged.replicas.select(*REPLICA, "log_end"), REPLICA)
        .where("offset < log_end")
        .join(data, ["producer_id", *REPLICA], "left")
        .groupBy("offset", "producer_id", *REPLICA)
        .agg(f.min(f.when(is_left, f.col("data_at"))).alias("left_at"))
        .select(*REPLICA, "offset", f.when(f.col("left_at").isNotNull(), why).alias("why"))
    )


def _removed_too_early(observed: ObservedRemovals) -> DataFrame:
    why = sentence(
        "the {kind} marker at offset {offset} was removed at most {age_ms} ms after it was written, and "
        "delete.retention.ms is {delete_retention_ms}",
        kind="upper(kind)",
    )
    return observed.removals.where(f.col("kind").isin(*MARKERS) & f.col("delete_retention_ms").isNotNull()).select(
        *REPLICA, "offset", f.when(f.col("age_ms") < f.col("delete_retention_ms"), why).alias("why")
    )


def _refilled(observed: ObservedRemovals) -> DataFrame:
    judged = observed.judged
    markers = judged.markers.selectExpr(*PARTITION, "marker_offset AS offset").distinct()
    # At the offset of a marker, a control batch without a type is an emptied marker.
    stored = _before(observed).where("marker IS NULL").selectExpr(*REPLICA, "last_offset AS offset")
    same_directory = (
        judged.evidence.states.groupBy(*REPLICA)
        .agg(f.expr("min(directory_id) = max(directory_id)").alias("same_directory"))
        .where("same_directory")
    )
    why = sentence("the control batch at offset {offset} was empty, and is a full marker again")
    return (
        colocated(stored.unionByName(observed.sightings.where("kind = 'empty'").select(*REPLICA, "offset")))
        .distinct()
        .join(colocated(markers), ["offset", *PARTITION], "left_semi")
        .join(colocated(same_directory), REPLICA, "left_semi")
        .join(_full_at_end(observed).withColumn("is_full", f.lit(True)), ["offset", *REPLICA], "left")
        .select(*REPLICA, "offset", f.when(f.col("is_full"), why).alias("why"))
    )


def _before(observed: ObservedRemovals) -> DataFrame:
    """Return the entries of each replica before the return that were below the replica's high watermark."""
    evidence = observed.judged.evidence
    high_watermarks = evidence.states.where(f.col("snapshot") == BEFORE_RETURN).select(*REPLICA, "high_watermark")
    return evidence.before_return.join(high_watermarks, REPLICA).where("last_offset < high_watermark")


def _full_at_end(observed: ObservedRemovals) -> DataFrame:
    full = observed.judged.evidence.final.where(f.col("marker").isin(*MARKERS))
    return full.selectExpr(*REPLICA, "last_offset AS offset")
