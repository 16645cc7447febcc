"""stuck-lso: a transaction that was decided stays open on a replica, and its last stable offset with it.

Verifies: on each replica, the first offset of every transaction that the replica's own log leaves open. It
is stuck when the decision lies within this replica's log: a marker of that producer after that offset was
seen on another replica (or earlier) below this log's end; or the client knows the outcome and another
replica, whose high watermark is not beyond this log's end, has its last stable offset past it.

Does not verify: last stable offsets against each other (a follower's may lag behind legally). A transaction
open on every replica is a hanging transaction, not this. One whose marker may lie beyond this log's end is
undetermined and not flagged.

Source: KIP-98, `ProducerStateManager.firstUnstableOffset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import PARTITION, REPLICA, held, in_one
from checkers.finding import VISIBLE, findings, printable
from harness.scenario import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where read_committed is frozen."""
    said = judged.replicas.select(*REPLICA, "log_end", "bound", "high_watermark", "last_stable_offset")
    opened = held(judged.opened.join(said, REPLICA).where("first_offset < bound"))
    marked = (
        opened.join(judged.markers, [*PARTITION, "producer_id"])
        .where("marker_offset > first_offset AND marker_offset < log_end")
        .groupBy(*REPLICA, "producer_id")
        .agg(
            f.min("marker_offset").alias("marker_offset"),
            f.min_by("outcome", "marker_offset").alias("marker_says"),
        )
    )
    others = judged.replicas.select(
        *PARTITION,
        f.col("broker").alias("other"),
        f.col("last_stable_offset").alias("other_lso"),
        f.col("high_watermark").alias("other_high_watermark"),
    )
    passed = (
        opened.join(others, PARTITION)
        .where("other != broker AND other_lso > first_offset AND other_high_watermark <= log_end")
        .groupBy(*REPLICA, "producer_id")
        .agg(f.min("other").alias("other"), f.min_by("other_lso", "other").alias("other_lso"))
    )
    records = judged.known.select(*PARTITION, "offset", "key", "txn", "truth")
    first_record = (
        opened.join(records, PARTITION)
        .where("offset BETWEEN first_offset AND first_last_offset")
        .groupBy(*REPLICA, "producer_id")
        .agg(*(f.min_by(name, "offset").alias(name) for name in ("key", "txn", "truth")))
    )
    stuck = (
        opened.join(in_one(marked), [*REPLICA, "producer_id"], "left")
        .join(in_one(passed), [*REPLICA, "producer_id"], "left")
        .join(in_one(first_record), [*REPLICA, "producer_id"], "left")
        .where("marker_offset IS NOT NULL OR (truth IS NOT NULL AND other IS NOT NULL)")
        .withColumn("offset", f.col("first_offset"))
    )
    outcome = f.coalesce("truth", "marker_says")
    return findings(
        stuck,
        Anomaly.STUCK_LSO,
        effect=f.lit(VISIBLE),
        explanation=f.format_string(
            "read_committed is frozen at %d, high watermark %d: transaction %s (producer %d, key %s) was %s, "
            "and this broker's log holds it open",
            "first_offset",
            "high_watermark",
            f.coalesce("txn", f.lit("?")),
            "producer_id",
            printable("key"),
            outcome,
        ),
        witness={
            "transaction": f.col("txn"),
            "outcome": outcome,
            "last_stable_offset_here": f.col("last_stable_offset"),
            "high_watermark_here": f.col("high_watermark"),
            "log_end_here": f.col("log_end"),
            "marker_seen_elsewhere_at": f.col("marker_offset"),
            "other_broker": f.col("other"),
            "last_stable_offset_there": f.col("other_lso"),
        },
    )
