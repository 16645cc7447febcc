"""A broker's side files, and its answers, against its log: all come from the same broker, and must agree.

Verifies, for copies of folders, and for logs that were read from a running cluster, by the brokers' answers:

* the open transactions in the newest producer snapshot, where the snapshot was taken at or after the last segment's
  first offset (earlier batches may have been cleaned since): each is open in the log or ended after the snapshot, and
  each transaction that is open in the log from before the snapshot is in the snapshot;
* the log aborts every batch within the span of a ``.txnindex`` entry of its producer, by the marker of that entry;
* every batch that the log aborts is within such a span; for a running cluster only as far as its broker was asked for
  aborted transactions, at most up to the last stable offset;
* where the broker was asked about the complete log (``served``), also in runs (`compare_answers`): the same
  transactions are open in its answer and in its log, and its last stable offset is not past one of them. In a running
  cluster only transactions that began below the bound count, and one that is open in the answer may have ended since.

Does not verify: older snapshots; sequences and epochs in snapshots; entries of transactions whose batches are gone;
last stable offsets that lag; offsets below the log start, which a broker does not read when it starts.
Source: `ProducerStateManager`, `TransactionIndex`; DescribeProducers (KIP-664).
"""

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from checkers.evidence.parse import FETCH
from checkers.evidence.schemas import ABORTS
from checkers.evidence.tables import PARTITION, REPLICA, UNBOUNDED, Evidence, at_first, checkpointed, colocated
from checkers.finding import BATCH, LIST, reason
from checkers.replay.batch_outcomes import from_here_on, with_first_marker
from harness.broker_files.segments.records import ABORT, MARKERS
from harness.run_folder.store import AFTER_REJOIN

_PRODUCER = ["producer_id", *REPLICA]
DOUBT = (*REPLICA, "reason", "offset", "producer_id", "shown_by")
"""The columns of a doubt, as in `checkers.finding.findings`."""


def compare(evidence: Evidence, replicas: DataFrame, opened: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return `DOUBT`. Of the entries, only control batches are used; ``beliefs``: about batches or producer spans."""
    return (
        _snapshots(evidence, replicas, opened)
        .unionByName(_indexes(evidence, replicas, beliefs))
        .unionByName(compare_answers(replicas, opened, evidence))
    )


def _doubt_at(offset: Column, shown_by: Column | str = BATCH) -> list[Column]:
    """Return the columns of `DOUBT` except ``reason``, for rows of REPLICA and ``producer_id``."""
    return [*map(f.col, (*REPLICA, "producer_id")), offset.alias("offset"), f.lit(shown_by).alias("shown_by")]


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
    before = opened.join(comparable, REPLICA).where("first_offset < as_of")
    in_log = before.selectExpr(*_PRODUCER, "first_offset AS in_log")
    return (
        colocated(in_snapshot.drop("as_of").join(in_log, _PRODUCER, "full"))
        .join(colocated(ended), _PRODUCER, "left_anti")
        .join(last_segments, REPLICA)
        # A raised log start offset removes first batches from the log, or from the state that a broker reads from it.
        .where("NOT in_snapshot <=> in_log AND NOT least(in_snapshot, in_log) < log_start")
        .select(
            *_doubt_at(f.coalesce("in_snapshot", "in_log")),
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
        .join(replicas.select(*REPLICA, "log_start", "last_segment", "listed_to"), REPLICA)
        .where("at >= log_start AND (last_segment IS NOT NULL OR at < listed_to)")
        .groupBy("last_segment", *REPLICA)
        .agg(*at_first("at", "inside", "belief", "producer_id"))
        .select(
            *_doubt_at(f.col("at"), f.expr(f"if(inside, '{LIST}', '{BATCH}')")),
            reason(
                "{source} {has} the batch at offset {at} among aborted transactions, but in its log it is {belief}",
                source="if(last_segment IS NULL, 'the broker', 'its .txnindex')",
                has="if(inside, 'has', 'does not have')",
            ),
        )
    )


def compare_answers(replicas: DataFrame, opened: DataFrame, evidence: Evidence) -> DataFrame:
    """Return `DOUBT`; takes ``replicas`` and ``opened`` as in `judged.Judged`."""
    below = f"coalesce(read_bound, {UNBOUNDED}) AS below"
    asked = replicas.where("open IS NOT NULL").selectExpr(*REPLICA, "open", "log_start", below)
    answered = (
        asked.select(*REPLICA, "below", f.explode("open").alias("txn"))
        .selectExpr(*REPLICA, "below", "txn[0] AS producer_id", "txn[2] AS answered_at")
        .where("answered_at < below")
    )
    if not evidence.has_clients:
        answered = _not_ended_after(answered, evidence)
    derived = (
        opened.join(asked.select(*REPLICA, "below"), REPLICA)
        .where("first_offset < below")
        .selectExpr(*_PRODUCER, "first_offset AS derived_at")
    )
    other_transactions = (
        answered.select(*_PRODUCER, "answered_at")
        .join(derived, _PRODUCER, "full")
        .join(asked.select(*REPLICA, "log_start"), REPLICA)
        # A raised log start offset removes a transaction's batches from the log, not from the answer.
        .where("answered_at IS NULL OR (derived_at IS NULL AND answered_at >= log_start)")
        .select(
            *_doubt_at(f.coalesce("derived_at", "answered_at")),
            reason(
                "the broker says that producer {producer_id} has {answered} open transaction, its log that it has "
                "{derived}",
                answered="if(answered_at IS NULL, 'no', 'an')",
                derived="if(derived_at IS NULL, 'none', 'one')",
            ),
        )
    )
    stable_past_open = (
        opened.join(replicas.select(*REPLICA, "last_stable_offset", "log_start"), REPLICA)
        # It is the log start for a transaction that began before (`UnifiedLog.maybeIncrementFirstUnstableOffset`).
        .where("last_stable_offset > greatest(first_offset, log_start)")
        .select(
            *_doubt_at(f.col("first_offset")),
            reason(
                "the broker's last stable offset {last_stable_offset} is past offset {first_offset}, where its log "
                "leaves a transaction open"
            ),
        )
    )
    return other_transactions.unionByName(stable_past_open)


def _not_ended_after(answered: DataFrame, evidence: Evidence) -> DataFrame:
    """Leave out transactions whose first marker in the same log is at or after the bound: they may have ended since."""
    markers = evidence.final.where(f.col("marker").isin(*MARKERS)).selectExpr(
        *_PRODUCER, "last_offset AS marker_offset", "marker AS outcome"
    )
    followed = with_first_marker(answered, markers, at="answered_at", group=_PRODUCER)
    return followed.where("NOT coalesce(first_marker >= below, false)")


def compare_spans(aborts: DataFrame, epochs: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return replicas whose ranges of one aborted transaction differ: their logs may agree, but their beliefs do not.

    REPLICA of the longest span, ``reason``, ``spans``, ``producer_id``, ``last_offset``, ``leader_epoch`` (in which, or
    after which, the longest span began), ``offset`` (where it begins) and ``shown_by`` (see `checkers.finding`).
    ``spans``: ``broker``, ``first_offset`` of each replica that has a span of the marker and whose log covers the
    longest span. ``aborts``: `ABORTS`. ``epochs``: `EPOCHS`. ``replicas``: as in `judged.Judged`.

    Verifies: the spans of aborted transactions (from ``.txnindex``, or from brokers' answers) that end at the same
    ABORT below the bound, against each other. The replica with the longer span may have missed a marker inside it, and
    compaction removed the records that would show this. Or that replica is right, and the other one copied a log from
    which compaction had removed the transaction's first batches. The logs do not distinguish these cases: ``clean`` is
    forbidden, without a finding. A replica that received every record may decide
    (`harness.audit.explain.attribution.attribute_spans`). Does not verify: spans that only one replica has, as
    compaction removes the index entry with the marker. Source: `ProducerAppendInfo`, `CleanedTransactionMetadata`.
    """
    replica_span = f.struct("first_offset", "broker", "log_start")
    differing = (
        colocated(aborts)
        .join(replicas.select(*REPLICA, "log_start", "bound"), REPLICA)
        .where("last_offset < bound")
        .groupBy("producer_id", "last_offset", *PARTITION)
        .agg(f.min(replica_span).alias("longest"), f.collect_list(replica_span).alias("all"))
        .withColumn("spans", f.filter("all", lambda span: span["log_start"] <= f.col("longest.first_offset")))
        .withColumn("shortest", f.array_max("spans"))
        .where("longest.first_offset < shortest.first_offset")
        .select(
            *PARTITION,
            "longest.broker",
            f.col("longest.first_offset").alias("longest_from"),
            "producer_id",
            "last_offset",
            "spans",
            reason(
                "it counts the records of producer {producer_id} from offset {longest_from} to {last_offset} as "
                "aborted, broker {other} only from {shortest_from} on: it missed a marker in between, or broker "
                "{other} copied a log that had been cleaned",
                longest_from="longest.first_offset",
                other="shortest.broker",
                shortest_from="shortest.first_offset",
            ),
        )
    )
    # On no replica does an epoch begin before its true start offset (see `unreplicated_tails`).
    began = epochs.select(*PARTITION, "leader_epoch", "start_offset")
    return (
        colocated(differing)
        .join(colocated(began), PARTITION, "left")
        .groupBy(*differing.columns)
        .agg(f.expr("max(if(start_offset <= longest_from, leader_epoch, NULL))").alias("leader_epoch"))
        .selectExpr("*", "longest_from AS offset", f"'{LIST}' AS shown_by")
        .drop("longest_from")
    )


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
