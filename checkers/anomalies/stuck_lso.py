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

Does not verify: last stable offsets against each other (a follower's may legally lag behind); transactions that are
open on every replica (`hanging_transaction`); transactions whose marker may lie beyond this log's end.

Source: KIP-98, `ProducerStateManager.firstUnstableOffset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated
from checkers.finding import VISIBLE, Finder, findings, printable, sentence
from checkers.replay.batch_outcomes import OPEN, with_first_marker
from harness.broker_files.segments.records import MARKERS
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where read_committed is frozen."""
    states = judged.replicas.select(*REPLICA, "log_end", "bound", "high_watermark", "last_stable_offset")
    compared = judged.opened.join(states, REPLICA).where("first_offset < bound")
    markers = (
        judged.markers
        if judged.replica_only is None
        else colocated(judged.markers.unionByName(_emptied_markers(judged)))
    )
    is_within = f.col("first_marker") < f.col("log_end")
    opened = checkpointed(
        with_first_marker(compared, markers, at="first_offset").withColumns(
            {
                "marker_offset": f.when(is_within, f.col("first_marker")),
                "marker_says": f.when(is_within, f.col("marker_outcome")),
            }
        )
    )
    others = judged.replicas.select(
        *PARTITION,
        f.col("broker").alias("other"),
        f.col("last_stable_offset").alias("other_lso"),
        f.col("high_watermark").alias("other_high_watermark"),
    )
    past_it = (
        opened.join(others, PARTITION)
        .where("other != broker AND other_lso > first_offset AND other_high_watermark <= log_end")
        .groupBy("producer_id", *REPLICA)
        .agg(f.min("other").alias("other"), f.min_by("other_lso", "other").alias("other_lso"))
    )
    records = judged.written.select(*PARTITION, "offset", "key", "txn", "truth")
    first_record = (
        opened.join(records, PARTITION)
        .where("offset BETWEEN first_offset AND first_last_offset")
        .groupBy("producer_id", *REPLICA)
        .agg(*(f.min_by(name, "offset").alias(name) for name in ("key", "txn", "truth")))
    )
    stuck = (
        opened.join(colocated(past_it), ["producer_id", *REPLICA], "left")
        .join(colocated(first_record), ["producer_id", *REPLICA], "left")
        .transform(lambda rows: _with_replica_evidence(rows, judged, opened))
        .where(
            "marker_offset IS NOT NULL OR (truth IS NOT NULL AND other IS NOT NULL) OR released_by IS NOT NULL"
            " OR overtaken_at IS NOT NULL"
        )
    )
    outcome = f.coalesce("truth", "marker_says", f.lit("decided"))
    return findings(
        stuck,
        Anomaly.STUCK_LSO,
        offset="first_offset",
        effect=f.lit(VISIBLE),
        explanation=sentence(
            "read_committed is frozen at {first_offset}, high watermark {high_watermark}: transaction {txn} (producer "
            "{producer_id}, key {key}) was {outcome}, and this broker's log holds it open",
            txn=printable("txn", none="?"),
            key=printable("key"),
            outcome=outcome,
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
            "not_open_on_broker": f.col("released_by"),
            "overtaken_by_a_higher_epoch_at": f.col("overtaken_at"),
        },
    )


def _emptied_markers(judged: Judged) -> DataFrame:
    """Return the markers that compaction has emptied, as `Judged.markers` without an outcome."""
    return judged.evidence.final.where("control AND marker IS NULL").select(
        *PARTITION,
        "producer_id",
        f.col("last_offset").alias("marker_offset"),
        f.lit(None).cast("string").alias("outcome"),
    )


def _with_replica_evidence(rows: DataFrame, judged: Judged, opened: DataFrame) -> DataFrame:
    """Add ``released_by`` and ``overtaken_at``, from `Judged.replica_only`; null without it."""
    if judged.replica_only is None:
        null = f.lit(None)
        return rows.withColumns({"released_by": null.cast("int"), "overtaken_at": null.cast("long")})
    overtaken = judged.replica_only.overtaken.where(f.col("belief") == OPEN).select(
        *REPLICA, "producer_id", "overtaken_at"
    )
    return rows.join(colocated(_released(judged, opened)), ["producer_id", *REPLICA], "left").join(
        overtaken, ["producer_id", *REPLICA], "left"
    )


def _released(judged: Judged, opened: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``released_by``: a broker on which the transaction ended within this log."""
    others = judged.replicas.where("nothing_beyond").select(
        *PARTITION, f.col("broker").alias("released_by"), f.col("log_start").alias("start_there")
    )
    covered = colocated(opened.join(others, PARTITION)).where("start_there <= first_offset")
    open_there = judged.opened.select(
        *PARTITION, f.col("broker").alias("released_by"), "producer_id", f.col("first_offset").alias("open_there")
    )
    later_marker = (
        judged.evidence.final.where(f.col("marker").isin(*MARKERS))
        .groupBy(*PARTITION, f.col("broker").alias("released_by"), "producer_id")
        .agg(f.max("last_offset").alias("last_marker"))
    )
    by_log = (
        covered.join(open_there, ["released_by", "producer_id", *PARTITION], "left")
        .join(colocated(later_marker), ["released_by", "producer_id", *PARTITION], "left")
        .where("open_there IS NULL OR open_there > first_offset")
        .where("coalesce(last_marker < log_end, true)")
    )
    snapshots = judged.evidence.producers.select(
        *PARTITION,
        f.col("broker").alias("released_by"),
        "as_of",
        "producer_id",
        f.col("first_offset").alias("open_then"),
    )
    taken = snapshots.select(*PARTITION, "released_by", "as_of").distinct()
    by_snapshot = (
        colocated(covered.join(taken, ["released_by", *PARTITION]))
        .where("released_by != broker AND as_of > first_offset AND as_of <= log_end")
        .join(colocated(snapshots), ["released_by", "as_of", "producer_id", *PARTITION], "left")
        .where("open_then IS NULL OR open_then > first_offset")
    )
    columns = [*REPLICA, "producer_id", "released_by"]
    both = by_log.select(*columns).unionByName(by_snapshot.select(*columns))
    return both.groupBy("producer_id", *REPLICA).agg(f.min("released_by").alias("released_by"))


FINDER = Finder(
    name=Anomaly.STUCK_LSO,
    check=check,
    means=(
        "read_committed consumers of broker {broker} get no records from that offset on, and its cleaner is stuck, "
        "too: it missed the marker that ended the transaction of producer {producer_id}. It does not heal by itself"
    ),
)
