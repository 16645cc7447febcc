"""stuck-lso: a transaction that has ended stays open on a replica, whose last stable offset does not advance.

Verifies: the first offset of every transaction that is open in a replica's log. The transaction is stuck if its end
lies within this replica's log:

* a marker of the producer after that offset, also an emptied one, was seen on another replica (or earlier) below this
  log's end;
* the client knows the outcome, and another replica, whose high watermark is not beyond this log's end, has its last
  stable offset past that offset;
* on another replica, whose log covers the offset, the transaction is not open: by its log, where no marker beyond this
  log's end ends the transaction, or by a producer snapshot from before this log's end; in either case only where no
  record was removed beyond the shortest log end (see `truth.differing_keys`);
* this log has data of the same producer in a higher epoch, which a producer gets only after the end of all its earlier
  transactions (`ProducerAppendInfo`; KIP-360 and KIP-890).

Does not verify: last stable offsets against each other, as a follower's may lag; transactions that are open on every
replica (`hanging_transaction`); transactions whose marker may lie beyond this log's end.
Source: KIP-98, `ProducerStateManager.firstUnstableOffset`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, at_first, checkpointed, colocated
from checkers.finding import BATCH, VISIBLE, Finder, findings, sentence
from checkers.replay.batch_outcomes import with_first_marker
from checkers.replay.judged import Judged
from harness.broker_files.segments.records import MARKERS
from harness.schedules.catalog import Anomaly

_TRANSACTION = ["producer_id", *REPLICA]


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where read_committed is frozen."""
    states = judged.replicas.select(*REPLICA, "log_end", "bound", "high_watermark", "last_stable_offset")
    compared = judged.opened.join(states, REPLICA).where("first_offset < bound")
    markers = judged.markers
    if judged.replica_only is not None:
        # Markers that compaction has emptied have no outcome.
        emptied = judged.evidence.final.where("control AND marker IS NULL").selectExpr(
            *PARTITION, "producer_id", "last_offset AS marker_offset", "CAST(NULL AS string) AS outcome"
        )
        markers = colocated(markers.unionByName(emptied))
    opened = checkpointed(
        with_first_marker(compared, markers, at="first_offset").selectExpr(
            "*",
            "if(first_marker < log_end, first_marker, NULL) AS marker_offset",
            "if(first_marker < log_end, marker_outcome, NULL) AS marker_says",
        )
    )
    others = judged.replicas.selectExpr(
        *PARTITION, "broker AS other", "last_stable_offset AS other_lso", "high_watermark AS other_high_watermark"
    )
    past_it = (
        opened.join(others, PARTITION)
        .where("other != broker AND other_lso > first_offset AND other_high_watermark <= log_end")
        .groupBy(*_TRANSACTION)
        .agg(*at_first("other", "other_lso"))
    )
    first_record = (
        opened.join(judged.written.select(*PARTITION, "offset", "key", "txn", "truth"), PARTITION)
        .where("offset BETWEEN first_offset AND first_last_offset")
        .groupBy(*_TRANSACTION)
        .agg(*at_first("offset", "key", "txn", "truth"))
    )
    stuck = (
        opened.join(colocated(past_it), _TRANSACTION, "left")
        .join(colocated(first_record), _TRANSACTION, "left")
        .transform(lambda rows: _with_replica_evidence(rows, judged, opened))
        .where(
            "marker_offset IS NOT NULL OR (truth IS NOT NULL AND other IS NOT NULL) OR released_by IS NOT NULL"
            " OR overtaken_at IS NOT NULL"
        )
        .withColumn("outcome", f.coalesce("truth", "marker_says", f.lit("decided")))
    )
    return findings(
        stuck,
        Anomaly.STUCK_LSO,
        offset="first_offset",
        shown_by=BATCH,
        effect=VISIBLE,
        explanation=sentence(
            "read_committed is frozen at {first_offset}, high watermark {high_watermark}: transaction {txn!r:?} "
            "(producer {producer_id}, key {key!r}) {ended}, but this replica still has it open",
            ended="if(outcome = 'decided', 'has ended', concat('was ', outcome))",
        ),
        witness="txn AS transaction, outcome, last_stable_offset AS last_stable_offset_here, "
        "high_watermark AS high_watermark_here, log_end AS log_end_here, marker_offset AS marker_seen_elsewhere_at, "
        "other AS other_broker, other_lso AS last_stable_offset_there, released_by AS not_open_on_broker, "
        "overtaken_at AS overtaken_by_a_higher_epoch_at",
    )


def _with_replica_evidence(rows: DataFrame, judged: Judged, opened: DataFrame) -> DataFrame:
    """Add ``released_by`` and ``overtaken_at``, null without `Judged.replica_only`."""
    if judged.replica_only is None:
        return rows.selectExpr("*", "CAST(NULL AS int) AS released_by", "CAST(NULL AS long) AS overtaken_at")
    overtaken = judged.replica_only.overtaken.where("belief = 'open'").select(*_TRANSACTION, "overtaken_at")
    return rows.join(colocated(_released(judged, opened)), _TRANSACTION, "left").join(overtaken, _TRANSACTION, "left")


def _released(judged: Judged, opened: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``released_by``: a broker on which the transaction ended within this log."""
    there = ["released_by", "producer_id", *PARTITION]
    other = (*PARTITION, "broker AS released_by")
    others = judged.replicas.where("nothing_beyond").selectExpr(*other, "log_start AS start_there")
    covered = colocated(opened.join(others, PARTITION)).where("start_there <= first_offset")
    open_there = judged.opened.selectExpr(*other, "producer_id", "first_offset AS open_there")
    later_marker = (
        judged.evidence.final.where(f.col("marker").isin(*MARKERS))
        .groupBy(*PARTITION, f.col("broker").alias("released_by"), "producer_id")
        .agg(f.max("last_offset").alias("last_marker"))
    )
    by_log = (
        covered.join(open_there, there, "left")
        .join(colocated(later_marker), there, "left")
        .where("open_there IS NULL OR open_there > first_offset")
        .where("coalesce(last_marker < log_end, true)")
    )
    snapshots = judged.evidence.producers.selectExpr(*other, "as_of", "producer_id", "first_offset AS open_then")
    taken = snapshots.select(*PARTITION, "released_by", "as_of").distinct()
    by_snapshot = (
        colocated(covered.join(taken, ["released_by", *PARTITION]))
        .where("released_by != broker AND as_of > first_offset AND as_of <= log_end")
        .join(colocated(snapshots), ["as_of", *there], "left")
        .where("open_then IS NULL OR open_then > first_offset")
    )
    columns = [*_TRANSACTION, "released_by"]
    both = by_log.select(*columns).unionByName(by_snapshot.select(*columns))
    return both.groupBy(*_TRANSACTION).agg(f.min("released_by").alias("released_by"))


FINDER = Finder(
    name=Anomaly.STUCK_LSO,
    check=check,
    means="read_committed consumers of broker {broker} get no records from that offset on, and its cleaner is stuck, "
    "too: it missed the marker that ended a transaction. It does not heal by itself",
)
