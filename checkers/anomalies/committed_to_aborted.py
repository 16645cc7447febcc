"""committed-to-aborted: a replica counts data of a committed transaction as aborted and hides it.

Verifies four kinds of evidence, the first three (see `hidden`) against each transaction's true outcome (see `truth`):

* ``log``        the replica still has the record, and the next marker of the record's producer there is an ABORT;
* ``txnindex``   the record lies inside the range of an aborted transaction in the replica's ``.txnindex``, which
                 still shows this after the replica has compacted the record away;
* ``held``       the replica had a committed tombstone before its return; the tombstone is gone while the older value
                 is alive: a replica that believes the tombstone committed removes the value first;
* ``span``       no record is left on any replica, but a COMMIT of the producer was seen inside the range of one
                 aborted transaction in the replica's ``.txnindex``.

The effect is visible where a hidden record makes a key's final state on this replica wrong, else latent.
Does not verify: records of unknown outcome; hidden records that neither the log nor the ``.txnindex`` still shows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA, at_first
from checkers.finding import LATENT, LIST, RECORD, VISIBLE, Finder, findings, sentence
from checkers.replay.batch_outcomes import with_first_marker
from checkers.replay.judged import Judged
from harness.schedules.catalog import Anomaly


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first committed record that is hidden, or where the transaction began."""
    rows = _records(judged)
    return rows if judged.replica_only is None else rows.unionByName(_spans(judged))


def _records(judged: Judged) -> DataFrame:
    wrong = judged.differing_keys.selectExpr(*REPLICA, "true_offset AS offset", "here_offset", "true AS differs")
    hidden = (
        judged.hidden.join(wrong, ["offset", *REPLICA], "left")
        .groupBy("producer_id", "txn", *REPLICA)
        .agg(
            *at_first("offset", "key", "tombstone", "here_offset"),
            f.max("abort_at").alias("abort_at"),
            f.sort_array(f.collect_set("source")).alias("sources"),
            f.max(f.coalesce("differs", f.lit(False))).alias("differs"),
            f.size(f.collect_set("offset")).alias("records"),
        )
    )
    consequence = (
        f.when(
            f.col("tombstone") & f.col("here_offset").isNotNull(),
            sentence("the deleted value at offset {here_offset} is back"),
        )
        .when(f.col("differs"), "the key's final state is wrong")
        .otherwise("later records supersede it")
    )
    return findings(
        hidden,
        Anomaly.COMMITTED_TO_ABORTED,
        shown_by=f.when(f.array_contains("sources", "txnindex"), LIST).otherwise(RECORD),
        effect=f.when(f.col("differs"), VISIBLE).otherwise(LATENT),
        proven=False,
        explanation=sentence(
            "committed {what} {key!r} is hidden as aborted: transaction {txn!r:?} (producer {producer_id}) was "
            "committed, and this broker applies {marker} to the transaction; {consequence}",
            what="if(tombstone, 'delete of', 'record')",
            marker="coalesce(concat('the ABORT at offset ', abort_at), 'another marker')",
            consequence=consequence,
        ),
        witness="txn AS transaction, 'committed' AS outcome, 'aborted' AS believed_here, "
        "abort_at AS marker_taken_here_at, sources AS evidence, here_offset AS alive_here_at, records",
    )


def _spans(judged: Judged) -> DataFrame:
    entries = judged.evidence.aborts.selectExpr(
        *REPLICA, "producer_id", "first_offset AS offset", "last_offset AS span_to"
    )
    spans = entries.join(judged.replicas.select(*REPLICA, "bound"), REPLICA).where("offset < bound")
    reported = judged.hidden.selectExpr(*REPLICA, "producer_id", "abort_at AS span_to")
    hidden = (
        with_first_marker(spans, judged.markers, at="offset")
        .where("marker_outcome = 'committed'")
        .join(reported, ["producer_id", "span_to", *REPLICA], "left_anti")
    )
    return findings(
        hidden,
        Anomaly.COMMITTED_TO_ABORTED,
        key=None,
        shown_by=LIST,
        effect=LATENT,
        explanation=sentence(
            "a transaction of producer {producer_id} was committed at offset {first_marker}, and this broker's "
            ".txnindex lists it, from offset {offset} on, as part of the transaction that was aborted at offset "
            "{span_to}; no record of it is left"
        ),
        witness="'committed' AS outcome, 'aborted' AS believed_here, span_to AS marker_taken_here_at, "
        "first_marker AS marker_seen_elsewhere_at, array('span') AS evidence",
    )


FINDER = Finder(
    name=Anomaly.COMMITTED_TO_ABORTED,
    check=check,
    means="broker {broker} hides committed records from read_committed consumers, and its cleaner removes the records: "
    "the broker missed the COMMIT, and applied the next ABORT of the producer to the transaction",
)
