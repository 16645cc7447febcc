"""A broker's side files, and its answers, against its log: all come from the same broker, and must agree.

Verifies, for copies of folders, and for logs that were read from a running cluster, by the brokers' answers:

* the open transactions in the newest producer snapshot, where the snapshot was taken at or after the last segment's
  first offset (earlier batches may have been cleaned since): each is open in the log or ended after the snapshot, and
  each transaction that is open in the log from before the snapshot is in the snapshot;
* the log aborts every batch within the span of a ``.txnindex`` entry of its producer, by the marker of that entry;
* every batch that the log aborts is within such a span; for a running cluster only below the last stable offset, beyond
  which no broker lists aborted transactions;
* where the broker was asked about the log as it was read (``served``), also in runs (`compare_answers`): the same
  transactions are open in its answer and in its log, and its last stable offset is not past one of them.

Does not verify: older snapshots; sequences and epochs in snapshots; entries of transactions whose batches are gone;
last stable offsets that lag; answers about offsets below the log start.

Source: `ProducerStateManager`, `TransactionIndex`; DescribeProducers (KIP-664).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.parse import FETCH
from checkers.evidence.schemas import ABORTS
from checkers.evidence.tables import REPLICA, Evidence, at_first, checkpointed, colocated
from checkers.finding import reason
from checkers.replay.batch_outcomes import from_here_on, with_first_marker
from harness.broker_files.segments.records import ABORT
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_PRODUCER = ["producer_id", *REPLICA]


def compare(evidence: Evidence, replicas: DataFrame, opened: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, ``reason``; uses only the control batches of the evidence's entries.

    The other parameters are as in `judged.Judged`; ``beliefs`` may be about producer spans instead of batches.
    """
    return (
        _snapshots(evidence, replicas, opened)
        .unionByName(_indexes(evidence, replicas, beliefs))
        .unionByName(compare_answers(replicas, opened))
    )


def _snapshots(evidence: Evidence, replicas: DataFrame, opened: DataFrame) -> DataFrame:
    newest = evidence.producers.groupBy(*REPLICA).agg(f.max("as_of").alias("as_of"))
    last_segments = replicas.select(*REPLICA, "last_segment", "log_start")
    comparable = colocated(newest).join(last_segments, REPLICA).where("as_of >= last_segment")
    in_snapshot = evidence.producers.selectExpr(*_PRODUCER, "as_of", "first_offset AS in_snapshot").join(
        comparable, ["as_of", *REPLICA], "left_semi"
    )
    ended = (
        evidence.final.where("control")
        .selectExpr(*_PRODUCER, "last_offset AS ended_at")
        .join(comparable, REPLICA)
        .where("ended_at >= as_of")
        .select(*_PRODUCER)
        .distinct()
    )
    in_log = (
        opened.join(comparable, REPLICA).where("first_offset < as_of").selectExpr(*_PRODUCER, "first_offset AS in_log")
    )
    return (
        colocated(in_snapshot.drop("as_of").join(in_log, _PRODUCER, "full"))
        .join(colocated(ended), _PRODUCER, "left_anti")
        .join(last_segments, REPLICA)
        # A raised log start offset removes a transaction's first batches from the log, not from the snapshot.
        .where("NOT in_snapshot <=> in_log AND NOT coalesce(in_snapshot < log_start, false)")
        .select(
            *REPLICA,
            reason(
                "its producer snapshot holds a transaction of producer {producer_id} open from {in_snapshot:no offset} "
                "on, its log from {in_log:no offset} on"
            ),
        )
    )


def _indexes(evidence: Evidence, replicas: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Compare each batch with its producer's first ``.txnindex`` entry that ends after the batch."""
    spans = evidence.aborts.selectExpr(*_PRODUCER, "last_offset AS at", "struct(first_offset, last_offset) AS entry")
    batches = beliefs.where("transactional").selectExpr(*_PRODUCER, "base_offset AS at", "belief", "decided_by")
    entry = f.last("entry", ignorenulls=True).over(from_here_on(_PRODUCER, "at"))
    return (
        batches.unionByName(spans, allowMissingColumns=True)
        .withColumn("entry", entry)
        .withColumn("inside", f.expr("coalesce(entry.first_offset <= at, false)"))
        .withColumn("is_aborted", f.expr("belief = 'aborted'"))
        .where("inside != is_aborted OR (is_aborted AND entry.last_offset != decided_by)")
        .groupBy(*REPLICA)
        .agg(*at_first("at", "inside", "belief"))
        .join(replicas.select(*REPLICA, "last_segment", "last_stable_offset"), REPLICA)
        .where("last_segment IS NOT NULL OR at < last_stable_offset")
        .select(
            *REPLICA,
            reason(
                "{source} {has} the batch at offset {at} among aborted transactions, but in its log it is {belief}",
                source="if(last_segment IS NULL, 'the broker', 'its .txnindex')",
                has="if(inside, 'has', 'does not have')",
            ),
        )
    )


def compare_answers(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    """Return REPLICA, ``reason``; takes ``replicas`` and ``opened`` as in `judged.Judged`."""
    asked = replicas.where("open IS NOT NULL")
    answered = asked.select(*REPLICA, f.explode("open").alias("txn")).selectExpr(
        *REPLICA, "txn[0] AS producer_id", "true AS answered"
    )
    derived = opened.join(asked.select(*REPLICA), REPLICA, "left_semi").selectExpr(*_PRODUCER, "true AS derived")
    other_transactions = (
        answered.join(derived, _PRODUCER, "full")
        .where("answered IS NULL OR derived IS NULL")
        .select(
            *REPLICA,
            reason(
                "the broker says that producer {producer_id} has {answered} open transaction, its log that it has "
                "{derived}",
                answered="if(answered, 'an', 'no')",
                derived="if(derived, 'one', 'none')",
            ),
        )
    )
    stable_past_open = (
        opened.join(replicas.select(*REPLICA, "last_stable_offset"), REPLICA)
        .where("last_stable_offset > first_offset")
        .select(
            *REPLICA,
            reason(
                "the broker's last stable offset {last_stable_offset} is past offset {first_offset}, where its log "
                "leaves a transaction open"
            ),
        )
    )
    return other_transactions.unionByName(stable_past_open)


def with_served_aborts(evidence: Evidence) -> Evidence:
    """Return the evidence with the aborted transactions that brokers listed when they served a log.

    A broker lists a transaction's first offset; for a read_committed consumer the transaction ends at the producer's
    next ABORT in that log. A transaction without such a marker is left out.
    """
    listed = evidence.states.select(*REPLICA, f.explode("aborted").alias("txn")).selectExpr(
        *REPLICA, "txn[0] AS producer_id", "txn[1] AS first_offset"
    )
    aborts = evidence.entries.where(f.col("marker") == ABORT).selectExpr(
        *_PRODUCER, "last_offset AS marker_offset", "'aborted' AS outcome"
    )
    spans = (
        with_first_marker(listed, aborts, at="first_offset", group=(*REPLICA, "producer_id"))
        .where("first_marker IS NOT NULL")
        .withColumnRenamed("first_marker", "last_offset")
        .selectExpr("*", f"'{AFTER_REJOIN}' AS snapshot", f"'{FETCH}' AS source", "CAST(NULL AS string) AS problem")
    )
    return replace(evidence, aborts=checkpointed(evidence.aborts.unionByName(spans.select(*ABORTS.names))))
