"""control-batches: a COMMIT or ABORT is removed after its transaction's data, not too early, and is emptied for good.

Verifies, on each replica that once had a marker below its high watermark:

* where the marker is gone at the end, or its batch emptied, no data batch of its transaction is left, emptied batches
  included: no batch of its producer before the marker, without another marker of that producer in between in this log;
* the observer did not see the marker removed before it was ``delete.retention.ms`` old (`removals`);
* where the batch was emptied, before the return or in an observation, it does not have a marker again at the end; only
  for replicas whose log directory never changed, as a log copied from another replica may still have the marker.

Does not verify: the type of a marker at an offset (see `offsets`); that an emptied batch ends no transaction
(`checkers.consistency.doubts` compares brokers' open transactions by that rule); that a marker or an emptied batch is
ever removed; the expiration of producers; replicas that never had the marker, which the anomalies are about.

Source: `Cleaner.shouldDiscardBatch`, `CleanedTransactionMetadata.onControlBatchRead` (a marker may be removed if the
pass read no batch of its transaction), KIP-534 (the delete horizon).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import results, sentence
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import BEFORE_RETURN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.removals import ObservedRemovals


def check(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`; the offset is the marker's."""
    rows = _removed_before_data(observed).unionByName(_removed_too_early(observed)).unionByName(_refilled(observed))
    return results(
        colocated(rows), guarantee, violation="why IS NOT NULL", explanation=f.col("why"), witness="why AS reason"
    )


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
    data = judged.beliefs.where("transactional").selectExpr(
        *REPLICA, "producer_id", "last_offset AS data_at", "decided_by"
    )
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
