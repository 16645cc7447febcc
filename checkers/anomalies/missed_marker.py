"""A log that proves that a marker was missed, where no other replica shows the type of that marker.

Verifies: data of a producer that is followed by data of a higher producer epoch before any marker (see
`batch_outcomes.overtaken_transactions`). This replica applies the next marker, which was written for another
transaction, to both. If both markers have the same type, the outcome is right, and the finding is only
`unexplained-divergence`; else it is the other anomaly in ``candidates``.
A batch that came late, after its marker, looks the same on every replica that has not cleaned it, and is legal.
Does not verify: transactions whose marker any replica shows, that are open (`stuck_lso`), or for which
`undeleted_values` has better evidence.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import BATCH, LATENT, UNEXPLAINED_DIVERGENCE, Finder, findings, sentence
from checkers.replay.batch_outcomes import COMMITTED, with_first_marker
from checkers.replay.judged import Judged
from harness.schedules.catalog import Anomaly


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where the transaction's first remaining batch begins."""
    if judged.replica_only is None:
        raise ValueError("only for audits: the clients of a run know the outcome of each transaction")
    overtaken = judged.replica_only.overtaken
    keys = (
        overtaken.selectExpr(*REPLICA, "producer_id", "offset AS from", "last_offset")
        .join(judged.records.select(*REPLICA, "offset", "key"), REPLICA)
        .where("offset BETWEEN from AND last_offset")
        .groupBy(*REPLICA, "producer_id", f.col("from").alias("offset"))
        .agg(f.min_by("key", "offset").alias("key"))
    )
    starts = f.collect_list("log_start").over(Window.partitionBy(*PARTITION)).alias("starts")
    reported = judged.replica_only.undeleted_values.select(*REPLICA, "producer_id", "decided_by")
    missed = (
        with_first_marker(overtaken.where("belief != 'open'"), judged.markers, at="offset")
        .join(judged.replicas.select(*REPLICA, "bound", "log_start", starts), REPLICA)
        .where("last_offset < bound AND offset >= log_start")
        .withColumn("holders", f.count("*").over(Window.partitionBy("producer_id", "decided_by", *PARTITION)))
        .where("holders < size(filter(starts, start -> start <= offset))")
        .where("coalesce(first_marker >= overtaken_at, true)")
        .join(reported, ["producer_id", "decided_by", *REPLICA], "left_anti")
        .join(colocated(keys), ["producer_id", "offset", *REPLICA], "left")
    )
    is_committed, other = f.col("belief") == COMMITTED, str(Anomaly.COMMITTED_TO_ABORTED)
    other_name = f.when(is_committed, str(Anomaly.ABORTED_TO_COMMITTED)).otherwise(other)
    return findings(
        missed,
        UNEXPLAINED_DIVERGENCE,
        candidates=f.array(f.lit(UNEXPLAINED_DIVERGENCE), other_name),
        effect=LATENT,
        shown_by=BATCH,
        explanation=sentence(
            "a marker of producer {producer_id} is missing between offset {offset} (key {key!r}) and its data of a "
            "higher epoch at {overtaken_at}: this broker applies the marker at {decided_by} to both transactions, "
            "and counts the first as {belief}"
        ),
        witness="belief AS believed_here, decided_by AS marker_taken_here_at, "
        "overtaken_at AS overtaken_by_a_higher_epoch_at",
    )


FINDER = Finder(name=UNEXPLAINED_DIVERGENCE, check=check, in_runs=False)
