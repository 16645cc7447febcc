"""A broker's side files against its log: both come from the same broker, and must agree.

Verifies, for copies of folders, and for logs that were read from a running cluster, by the brokers' answers
(`wire_answers`):

* the open transactions in the newest producer snapshot, where the snapshot was taken at or after the last segment's
  first offset (earlier batches may have been cleaned since): each is open in the log or ended after the snapshot, and
  each transaction that is open in the log from before the snapshot is in the snapshot;
* the log aborts every batch within the span of a ``.txnindex`` entry of its producer, by the marker of that entry;
* every batch that the log aborts is within such a span; for a running cluster only below the last stable offset, beyond
  which no broker lists aborted transactions.

Does not verify: older snapshots; sequences and epochs in snapshots; entries of transactions whose batches are gone.

Source: `ProducerStateManager`, `TransactionIndex`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.consistency import wire_answers
from checkers.evidence.tables import REPLICA, colocated
from checkers.finding import number, reason
from checkers.replay.batch_outcomes import ABORTED, from_here_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Evidence
    from checkers.replay.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return REPLICA, ``reason``."""
    return compare(judged.evidence, judged.replicas, judged.opened, judged.beliefs)


def compare(evidence: Evidence, replicas: DataFrame, opened: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, ``reason``; uses only the control batches of the evidence's entries.

    The other parameters are as in `judged.Judged`; ``beliefs`` may be about producer spans instead of batches.
    """
    return (
        _snapshots(evidence, replicas, opened)
        .unionByName(_indexes(evidence, replicas, beliefs))
        .unionByName(wire_answers.compare(replicas, opened))
    )


def _snapshots(evidence: Evidence, replicas: DataFrame, opened: DataFrame) -> DataFrame:
    newest = evidence.producers.groupBy(*REPLICA).agg(f.max("as_of").alias("as_of"))
    last_segments = replicas.select(*REPLICA, "last_segment", "log_start")
    comparable = colocated(newest).join(last_segments, REPLICA).where("as_of >= last_segment")
    in_snapshot = evidence.producers.select(
        *REPLICA, "as_of", "producer_id", f.col("first_offset").alias("in_snapshot")
    ).join(comparable, ["as_of", *REPLICA], "left_semi")
    ended = (
        evidence.final.where("control")
        .select(*REPLICA, "producer_id", f.col("last_offset").alias("ended_at"))
        .join(comparable, REPLICA)
        .where("ended_at >= as_of")
        .select(*REPLICA, "producer_id")
        .distinct()
    )
    in_log = (
        opened.join(comparable, REPLICA)
        .where("first_offset < as_of")
        .select(*REPLICA, "producer_id", f.col("first_offset").alias("in_log"))
    )
    return (
        colocated(in_snapshot.drop("as_of").join(in_log, ["producer_id", *REPLICA], "full"))
        .join(colocated(ended), ["producer_id", *REPLICA], "left_anti")
        .join(last_segments, REPLICA)
        # A raised log start offset removes a transaction's first batches from the log, not from the snapshot.
        .where("NOT in_snapshot <=> in_log AND NOT coalesce(in_snapshot < log_start, false)")
        .select(
            *REPLICA,
            reason(
                "its producer snapshot holds a transaction of producer {producer_id} open from {in_snapshot} on, its "
                "log from {in_log} on",
                in_snapshot=number("in_snapshot", none="no offset"),
                in_log=number("in_log", none="no offset"),
            ),
        )
    )


def _indexes(evidence: Evidence, replicas: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Compare each batch with its producer's first ``.txnindex`` entry that ends after the batch."""
    after = from_here_on(["producer_id", *REPLICA], "at")
    spans = evidence.aborts.select(
        *REPLICA,
        "producer_id",
        f.col("last_offset").alias("at"),
        f.struct("first_offset", "last_offset").alias("entry"),
    )
    batches = beliefs.where("transactional").select(
        *REPLICA, "producer_id", f.col("base_offset").alias("at"), "belief", "decided_by"
    )
    wrong = (
        batches.unionByName(spans, allowMissingColumns=True)
        .withColumn("entry", f.last("entry", ignorenulls=True).over(after))
        .withColumn("inside", f.coalesce(f.col("entry.first_offset") <= f.col("at"), f.lit(False)))
        .withColumn("is_aborted", f.col("belief") == ABORTED)
        .where("inside != is_aborted OR (is_aborted AND entry.last_offset != decided_by)")
    )
    return (
        wrong.groupBy(*REPLICA)
        .agg(*(f.min_by(name, "at").alias(name) for name in ("inside", "belief")), f.min("at").alias("at"))
        .join(replicas.select(*REPLICA, "last_segment", "last_stable_offset"), REPLICA)
        .where("last_segment IS NOT NULL OR at < last_stable_offset")
        .select(
            *REPLICA,
            reason(
                "{source} {has} the batch at offset {at} among aborted transactions, but in its log it is {belief}",
                source=f.when(f.col("last_segment").isNull(), "the broker").otherwise("its .txnindex"),
                has=f.when(f.col("inside"), "has").otherwise("does not have"),
            ),
        )
    )
