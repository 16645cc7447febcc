"""control-batches: a COMMIT or ABORT goes after its transaction's data, and not before its time; emptied is for good.

Verifies, on each replica that once held a marker below its high watermark:

* where the marker is gone at the end, or its batch emptied, no batch of its producer, emptied ones too, is left that
  it had ended there: one before it which this log has no other marker for in between;
* the observer did not see it go before it was ``delete.retention.ms`` old (`watched`);
* where its batch was emptied, before the return or when the observer looked, it is no full marker at the end; only of
  replicas whose log directory is the same all along, as another copy may still have the marker.

Does not verify: the type of a marker at an offset (`offsets` does); that an emptied batch, which carries no COMMIT or
ABORT, ends nothing (what brokers say of open transactions is compared with that rule in
`checkers.consistency.doubts`); that a marker or an emptied batch ever goes; when producers expire. A replica that
never had the marker has not removed it: that is what the anomalies are about.

Source: `Cleaner.shouldDiscardBatch`, `CleanedTransactionMetadata.onControlBatchRead` (a marker may go when no batch of
its transaction was met in this pass), KIP-534 (the delete horizon).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.guarantees.told import told
from harness.run_folder.store import BEFORE_RETURN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "control-batches"
MARKERS = "kind IN ('commit', 'abort')"


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`; the offset is the marker's."""
    rows = _gone(watched).unionByName(_timed(watched)).unionByName(_emptied(watched))
    return told(
        colocated(rows), NAME, broken="why IS NOT NULL", explanation=f.col("why"), witness={"told": f.col("why")}
    )


def _gone(watched: Watched) -> DataFrame:
    judged = watched.judged
    had = (
        watched.sightings.where(f"NOT is_gone AND {MARKERS}")
        .select(*REPLICA, "offset", "producer_id")
        .unionByName(
            _before(watched)
            .where("marker IN ('commit', 'abort')")
            .select(*REPLICA, f.col("last_offset").alias("offset"), "producer_id")
        )
        .distinct()
    )
    data = judged.beliefs.where("transactional").select(
        *REPLICA, "producer_id", f.col("last_offset").alias("data_at"), "decided_by"
    )
    is_left = f.expr("data_at < offset AND (decided_by IS NULL OR decided_by > offset)")
    return (
        colocated(had)
        .join(_full_at_end(watched), [*REPLICA, "offset"], "left_anti")
        .join(judged.replicas.select(*REPLICA, "log_end"), REPLICA)
        .where("offset < log_end")
        .join(data, [*REPLICA, "producer_id"], "left")
        .groupBy(*REPLICA, "offset", "producer_id")
        .agg(f.min(f.when(is_left, f.col("data_at"))).alias("left_at"))
        .select(
            *REPLICA,
            "offset",
            f.when(
                f.col("left_at").isNotNull(),
                f.format_string(
                    "the marker at offset %d is gone, and the batch that ends at offset %d, of its transaction "
                    "(producer %d), is still there",
                    "offset",
                    "left_at",
                    "producer_id",
                ),
            ).alias("why"),
        )
    )


def _timed(watched: Watched) -> DataFrame:
    return watched.removals.where(f"{MARKERS} AND delete_retention_ms IS NOT NULL").select(
        *REPLICA,
        "offset",
        f.when(
            f.col("age_ms") < f.col("delete_retention_ms"),
            f.format_string(
                "the %s marker at offset %d was gone at most %d ms after it was written, and delete.retention.ms is %d",
                f.upper("kind"),
                "offset",
                "age_ms",
                "delete_retention_ms",
            ),
        ).alias("why"),
    )


def _emptied(watched: Watched) -> DataFrame:
    judged = watched.judged
    markers = judged.markers.select(*PARTITION, f.col("marker_offset").alias("offset")).distinct()
    # Where a marker was once seen, what is no marker is an emptied one.
    stored = _before(watched).where("marker IS NULL").select(*REPLICA, f.col("last_offset").alias("offset"))
    lasting = (
        judged.evidence.states.groupBy(*REPLICA)
        .agg(f.expr("min(directory_id) = max(directory_id)").alias("same_directory"))
        .where("same_directory")
    )
    full = _full_at_end(watched).withColumn("is_full", f.lit(True))
    seen = watched.sightings.where("kind = 'empty'").select(*REPLICA, "offset")
    return (
        colocated(stored.unionByName(seen).distinct())
        .join(colocated(markers), [*PARTITION, "offset"], "left_semi")
        .join(colocated(lasting), REPLICA, "left_semi")
        .join(full, [*REPLICA, "offset"], "left")
        .select(
            *REPLICA,
            "offset",
            f.when(
                f.col("is_full"),
                f.format_string("the control batch at offset %d was empty, and is a full marker again", "offset"),
            ).alias("why"),
        )
    )


def _before(watched: Watched) -> DataFrame:
    """Return what a replica held before the return and knew to be below its high watermark."""
    evidence = watched.judged.evidence
    written = evidence.states.where(f.col("snapshot") == BEFORE_RETURN).select(*REPLICA, "high_watermark")
    return evidence.before_return.join(written, REPLICA).where("last_offset < high_watermark")


def _full_at_end(watched: Watched) -> DataFrame:
    full = watched.judged.evidence.final.where("marker IN ('commit', 'abort')")
    return full.select(*REPLICA, f.col("last_offset").alias("offset"))
