"""served: records that a read_committed consumer receives, judged by the history of the clients alone.

For systems whose replicas cannot be read, or that have none. Verifies, for the last poll of each partition:

* ``uncommitted-delivered``: no delivered record is in a transaction that was aborted, or that nobody ended;
* ``committed-lost``: the consumer ends up with each key's last committed record before the first transaction whose end
  was not acknowledged, as it may be open: the value is delivered, or after a delete no older value.

Does not verify: transactions whose end was not acknowledged, keys with a record that was not acknowledged, values.
"""

from functools import partial

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, at_first, colocated
from checkers.finding import VISIBLE, findings, sentence
from checkers.replay.judged import Judged
from checkers.replay.truth import client_outcomes, differing_keys, expected_states, txn_header
from harness.schedules.scenario import Critical


def check(judged: Judged) -> DataFrame:
    """Return findings: of each partition the first uncommitted record, and each key whose last state is wrong."""
    history, visible = judged.evidence.history, partial(findings, producer_id=None, effect=VISIBLE)
    written, delivered = _written(history), _delivered(history).drop("key")
    known = delivered.join(written, ["offset", *PARTITION])
    uncommitted = known.where("truth = 'aborted'").groupBy(*REPLICA)
    by_outcome = visible(
        uncommitted.agg(*at_first("offset", "key", "txn", "outcome"), f.count("*").alias("records")),
        "uncommitted-delivered",
        explanation=sentence(
            "a read_committed consumer is delivered record {key!r} of transaction {txn!r}, which is {outcome} "
            "(uncommitted records delivered: {records})"
        ),
        witness="txn AS transaction, outcome, records",
    )
    polled = history.where("f = 'poll' AND type = 'ok'").selectExpr(*REPLICA, "0 AS counts_from").distinct()
    expected = expected_states(written.where("is_stable"), polled)
    by_state = visible(
        # A later record is delivered where a broker has ended an open transaction, for example at its timeout.
        differing_keys(written, known.withColumn("belief", f.lit("committed")), expected).where(
            "NOT coalesce(here_offset > true_offset AND NOT here_truth <=> 'aborted', false)"
        ),
        "committed-lost",
        offset="true_offset",
        explanation=sentence(
            "key {key!r}: its last committed record is the {kind} at offset {true_offset}, and a read_committed "
            "consumer ends with {here}",
            kind="if(true_tombstone, 'delete', 'value')",
            here="coalesce(concat('the record at offset ', here_offset), 'no record')",
        ),
        witness="true_offset AS last_committed_at, here_offset AS last_delivered_at",
    )
    return colocated(by_outcome.unionByName(by_state))


def exposure(judged: Judged) -> DataFrame:
    """Return REPLICA and the evidence of a ``clean`` verdict, for each partition with a delivered record.

    ``kind``, ``critical_offset``: the last superseded record of the payload; ``is_delivered``; ``unknown``: delivered
    records that no client is known to have written; ``undecided``: records whose outcome or key's end is not known.
    """
    written, delivered = _written(judged.evidence.history), _delivered(judged.evidence.history)
    later = Window.partitionBy("key", *PARTITION).orderBy("offset").rowsBetween(1, Window.unboundedFollowing)
    is_committed = f.expr("truth = 'committed'")
    is_superseded = is_committed & f.expr("is_stable AND part = 'payload'") & (f.count_if(is_committed).over(later) > 0)
    superseded = written.withColumn("superseded", f.when(is_superseded, f.col("offset")))
    of_partition = superseded.groupBy(*PARTITION).agg(
        f.max("superseded").alias("critical_offset"), f.count_if(f.expr("truth IS NULL OR goes_on")).alias("undecided")
    )
    known = written.selectExpr(*PARTITION, "offset", "key AS written_key")
    rows = colocated(delivered.join(known, ["offset", *PARTITION], "left")).join(of_partition, PARTITION)
    return rows.groupBy(*REPLICA, "critical_offset", "undecided").agg(
        f.bool_or(f.expr("offset = critical_offset")).alias("is_delivered"),
        f.count_if(f.expr("NOT key <=> written_key")).alias("unknown"),
        f.lit(str(Critical.SUPERSEDED)).alias("kind"),
    )


def _delivered(history: DataFrame) -> DataFrame:
    """Return REPLICA, offset, key: the records of each partition's last poll."""
    last = history.where("f = 'poll' AND type = 'ok'").groupBy(*REPLICA).agg(f.max_by("records", "op").alias("records"))
    records = last.select(*REPLICA, f.explode("records").alias("record"))
    return records.selectExpr(*REPLICA, "record.offset", "CAST(record.key AS binary) AS key")


def _written(history: DataFrame) -> DataFrame:
    """Return the acknowledged records: PARTITION, offset, part, key, tombstone, txn, transactional, and the truth.

    ``outcome``: of the transaction, by its client: committed, aborted, open (no end was requested), or null. ``truth``:
    the same, where open counts as aborted: a consumer must not get the record. ``goes_on``: the key has a record whose
    offset is not known. ``is_stable``: no record up to it may be open (an ``outcome`` that is null may be).
    """
    lost = history.where("f = 'produce' AND type = 'info'").selectExpr(*PARTITION, "key", "true AS lost").distinct()
    ended = history.where("f IN ('commit', 'abort')").select("run", txn_header(), f.lit(True).alias("is_ended"))
    open_from = f.min(f.expr("if(outcome != 'open', NULL, offset)")).over(Window.partitionBy(*PARTITION))
    return (
        history.where("f = 'produce' AND offset IS NOT NULL")
        .withColumns({"txn": txn_header(), "transactional": f.col("transactional_id").isNotNull()})
        .select(*PARTITION, "offset", "part", "key", "tombstone", "txn", "transactional")
        .join(client_outcomes(history), ["run", "txn"], "left")
        .join(ended.distinct(), ["run", "txn"], "left")
        .join(colocated(lost), ["key", *PARTITION], "left")
        .withColumn("outcome", f.expr("if(transactional, if(is_ended, client_outcome, 'open'), 'committed')"))
        .withColumn("truth", f.expr("if(outcome = 'open', 'aborted', outcome)"))
        .withColumn("is_stable", f.coalesce(f.col("offset") < open_from, f.lit(True)))
        .withColumn("goes_on", f.expr("coalesce(lost, false)"))
    )
