"""tombstone-divergence: a replica never saw a key's tombstone and keeps serving the deleted value.

Verifies: every key whose last committed record is, in truth, a tombstone below the bound, against the last
record that each replica believes committed. It is wrong for a replica to have an older value alive and to
hold no record at the tombstone's offset, neither committed nor aborted nor open.

Legal and not flagged: a tombstone that is still there, a value that is still there *with* its tombstone, a
value that is gone, logs that start later.

A transactional tombstone may also have been there and been misjudged (committed-to-aborted). Where the
replica's ``.txnindex`` or its files before the return show that, it is not this anomaly; where neither
snapshot nor index can tell, both names are ``candidates``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import PARTITION, REPLICA
from checkers.finding import VISIBLE, findings, printable
from checkers.replay import COMMITTED
from harness.scenario import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is that of the value that should be gone."""
    alive = judged.differing_keys.where(
        f.col("true_tombstone") & (f.col("here_offset") < f.col("true_offset")) & (f.col("here_truth") == COMMITTED)
    )
    held_now = judged.records.select(*REPLICA, f.col("offset").alias("true_offset"))
    misjudged = judged.hidden.select(*REPLICA, f.col("offset").alias("true_offset")).distinct()
    seen_before = judged.evidence.before_return.select(*REPLICA, f.lit(True).alias("seen_before")).distinct()
    tombstones = judged.known.select(
        *PARTITION, f.col("offset").alias("true_offset"), "transactional", "txn", "producer_id"
    )
    missing = (
        alive.join(held_now, [*REPLICA, "true_offset"], "left_anti")
        .join(misjudged, [*REPLICA, "true_offset"], "left_anti")
        .join(seen_before, REPLICA, "left")
        .join(tombstones, [*PARTITION, "true_offset"])
        .withColumn("offset", f.col("here_offset"))
    )
    both = f.array(f.lit(str(Anomaly.TOMBSTONE_DIVERGENCE)), f.lit(str(Anomaly.COMMITTED_TO_ABORTED)))
    return findings(
        missing,
        Anomaly.TOMBSTONE_DIVERGENCE,
        candidates=f.when(f.col("transactional") & f.col("seen_before").isNull(), both).otherwise(
            f.array().cast("array<string>")
        ),
        effect=f.lit(VISIBLE),
        explanation=f.format_string(
            "deleted key %s is alive: it was deleted at offset %d, and this broker has no tombstone there and serves "
            "the value of offset %d",
            printable("key"),
            "true_offset",
            "here_offset",
        ),
        witness={
            "deleted_at": f.col("true_offset"),
            "alive_here_at": f.col("here_offset"),
            "transaction_of_the_delete": f.col("txn"),
        },
    )
