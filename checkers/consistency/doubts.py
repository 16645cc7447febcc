"""Contradictory evidence, and unexplained differences: both forbid the verdict ``clean``.

``contradiction``: a broker's answers, or observations of the broker, contradict its stored log.

* the batches that the broker served at the end are not the batches on its disk, where its disk is judged;
* the last observed log (number of batches and digest) is not the stored log;
* the broker's open transactions, or its last stable offset, differ from its log (`side_files`);
* a read_committed consumer of the broker was delivered other offsets below the bound than its log gives.

``unexplained``: findings of `unexplained`. In a run, which has a history of clients, they are a gap in the evidence.
Does not verify: answers about offsets below the log start; last stable offsets that lag; a replica whose broker was
down after the rejoin; aborted lists, ``.txnindex`` and producer snapshots against the log.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.anomalies import unexplained
from checkers.consistency import side_files
from checkers.evidence.parse import FETCH
from checkers.evidence.tables import REPLICA, at_first, colocated, digest_share
from checkers.finding import reason, sentence
from checkers.replay.judged import Judged
from harness.run_folder.store import AFTER_REJOIN

CONTRADICTION, UNEXPLAINED = "contradiction", "unexplained"


def check(judged: Judged) -> DataFrame:
    """Return REPLICA, ``kind``, ``reason``."""
    answers = side_files.compare_answers(judged.replicas, judged.opened, judged.evidence).select(*REPLICA, "reason")
    contradictions = (
        _batches_differ(judged)
        .unionByName(answers)
        .unionByName(_delivery_differs(judged))
        .select(*REPLICA, f.lit(CONTRADICTION).alias("kind"), "reason")
    )
    differences = unexplained.check(judged).selectExpr(*REPLICA, f"'{UNEXPLAINED}' AS kind", "explanation AS reason")
    return contradictions.unionByName(differences)


def _batches_differ(judged: Judged) -> DataFrame:
    """Return the replicas whose served or last observed batches differ from the stored batches in number or digest."""
    share, is_judged, is_fetched = digest_share(), f.col("judged"), f.col("source") == FETCH
    batches = (
        judged.evidence.entries.where((f.col("snapshot") == AFTER_REJOIN) & f.col("first_in_batch"))
        .join(judged.replicas.select(*REPLICA, "log_start", "served"), REPLICA)
        .where("last_offset >= log_start")
        .groupBy(*REPLICA, "served")
        .agg(
            f.count_if(is_judged).alias("stored"),
            f.bit_xor(f.when(is_judged, share)).alias("stored_digest"),
            f.count_if(is_fetched).alias("fetched"),
            f.bit_xor(f.when(is_fetched, share)).alias("fetched_digest"),
        )
    )
    last = judged.evidence.observations.groupBy(*REPLICA).agg(
        f.max_by("batches", "time_ms").alias("observed"), f.max_by("digest", "time_ms").alias("observed_digest")
    )
    reasons = f.array_compact(
        f.array(
            f.when(
                f.expr("served AND NOT (stored_digest = fetched_digest AND stored = fetched)"),
                sentence("{stored} batches on disk and {fetched} served after the rejoin, with other content"),
            ),
            f.when(
                f.expr("NOT (stored_digest = observed_digest AND stored = observed)"),
                sentence("the stored log ({stored} batches) is not the last observed log ({observed} batches)"),
            ),
        )
    )
    return colocated(batches).join(last, REPLICA, "left").select(*REPLICA, f.explode(reasons).alias("reason"))


def _delivery_differs(judged: Judged) -> DataFrame:
    polls = judged.evidence.history.where("f = 'poll' AND type = 'ok'").select(*REPLICA, "records", "position")
    delivered = (
        polls.select(*REPLICA, f.explode("records.offset").alias("offset"), f.lit(True).alias("delivered"))
        .join(judged.replicas.select(*REPLICA, "bound"), REPLICA)
        .where("offset < bound")
        .drop("bound")
    )
    derived = (
        judged.records.where("belief = 'committed'")
        .join(polls.select(*REPLICA), REPLICA, "left_semi")
        .join(judged.replicas.select(*REPLICA, "open_from"), REPLICA)
        .where("open_from IS NULL OR offset < open_from")
        .selectExpr(*REPLICA, "offset", "true AS derived")
    )
    return (
        colocated(colocated(delivered).join(derived, ["offset", *REPLICA], "full"))
        .where("delivered IS NULL OR derived IS NULL")
        .groupBy(*REPLICA)
        .agg(*at_first("offset", "delivered"))
        .select(
            *REPLICA,
            reason(
                "a read_committed consumer was {delivered} offset {offset}, which the stored log {gives}",
                delivered="if(delivered, 'delivered', 'not delivered')",
                gives="if(delivered, 'does not give', 'gives')",
            ),
        )
    )
