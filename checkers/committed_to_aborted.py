"""committed-to-aborted: a replica counts data of a committed transaction as aborted and hides it.

Verifies three kinds of evidence, against each transaction's true outcome (see `truth`):

* ``log``        the replica still holds the record, and the next marker of its producer there is an ABORT;
* ``txnindex``   an aborted transaction in its ``.txnindex`` spans the record's offset. This outlives the
                 record: the replica compacts what it misjudged, and its log then equals the others';
* ``held``       it held a committed tombstone before its return, which is gone while the older value
                 lives: had it believed the tombstone committed, the value would have gone first.

The effect is visible where a key's final state on this replica differs from the true one for such a record,
else latent: then every hidden record has been superseded by later committed ones.

Does not verify: records of unknown outcome; hidden records of which neither log nor index tells any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import PARTITION, REPLICA
from checkers.finding import LATENT, VISIBLE, findings, printable
from checkers.replay import ABORTED, COMMITTED
from harness.scenario import Anomaly
from harness.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.truth import Judged


def hidden_records(judged: Judged) -> DataFrame:
    """Return REPLICA, offset, key, tombstone, producer_id, txn, ``abort_at``, ``source`` of every hidden record.

    One row per record and source; ``abort_at`` is the offset of the ABORT taken for the transaction's end.
    """
    committed = judged.known.where((f.col("truth") == COMMITTED) & f.col("transactional"))
    facts = committed.select(*PARTITION, "offset", "key", "tombstone", "producer_id", "txn")
    by_log = (
        judged.records.where((f.col("belief") == ABORTED))
        .select(*REPLICA, "offset", f.col("decided_by").alias("abort_at"), f.lit("log").alias("source"))
        .join(facts, [*PARTITION, "offset"])
    )
    by_index = (
        judged.evidence.aborts.where((f.col("snapshot") == AFTER_REJOIN) & f.col("first_offset").isNotNull())
        .select(
            *REPLICA,
            "producer_id",
            "first_offset",
            f.col("last_offset").alias("abort_at"),
            f.lit("txnindex").alias("source"),
        )
        .join(facts, [*PARTITION, "producer_id"])
        .where("offset BETWEEN first_offset AND abort_at")
        .drop("first_offset")
    )
    return by_log.unionByName(by_index).unionByName(_undone_deletes(judged, facts))


def _undone_deletes(judged: Judged, facts: DataFrame) -> DataFrame:
    """Return committed tombstones that a replica held before the return, gone while the older value is alive."""
    held_before = judged.evidence.before_return.where("tombstone AND transactional").select(*REPLICA, "offset")
    held_now = judged.evidence.final.where("tombstone").select(*REPLICA, "offset")
    alive = judged.differing_keys.where("true_tombstone AND here_offset < true_offset").select(
        *REPLICA, f.col("true_offset").alias("offset")
    )
    return (
        alive.join(held_before, [*REPLICA, "offset"])
        .join(held_now, [*REPLICA, "offset"], "left_anti")
        .join(facts, [*PARTITION, "offset"])
        .withColumn("abort_at", f.lit(None).cast("long"))
        .withColumn("source", f.lit("held"))
    )


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first committed record that is hidden."""
    wrong_keys = judged.differing_keys.select(*REPLICA, "key", "here_offset").withColumn("differs", f.lit(True))
    hidden = (
        hidden_records(judged)
        .join(wrong_keys, [*REPLICA, "key"], "left")
        .groupBy(*REPLICA, "producer_id", "txn")
        .agg(
            f.min("offset").alias("offset"),
            f.min_by("key", "offset").alias("key"),
            f.min_by("tombstone", "offset").alias("tombstone"),
            f.min_by("here_offset", "offset").alias("here_offset"),
            f.max("abort_at").alias("abort_at"),
            f.sort_array(f.collect_set("source")).alias("sources"),
            f.max(f.coalesce("differs", f.lit(False))).alias("differs"),
            f.countDistinct("offset").alias("records"),
        )
    )
    comes_back = f.col("tombstone") & f.col("differs") & f.col("here_offset").isNotNull()
    consequence = f.when(
        comes_back, f.format_string("the deleted value at offset %d is alive again", "here_offset")
    ).otherwise(f.when(f.col("differs"), "the key's final state is wrong").otherwise("later records supersede it"))
    return findings(
        hidden,
        Anomaly.COMMITTED_TO_ABORTED,
        effect=f.when(f.col("differs"), VISIBLE).otherwise(LATENT),
        explanation=f.format_string(
            "committed %s %s is hidden as aborted: transaction %s (producer %d) was committed, and this broker takes "
            "%s for its end; %s",
            f.when(f.col("tombstone"), "delete of").otherwise("record"),
            printable("key"),
            f.coalesce("txn", f.lit("?")),
            "producer_id",
            f.coalesce(f.format_string("the ABORT at offset %d", "abort_at"), f.lit("another marker")),
            consequence,
        ),
        witness={
            "transaction": f.col("txn"),
            "outcome": f.lit(COMMITTED),
            "believed_here": f.lit(ABORTED),
            "marker_taken_here_at": f.col("abort_at"),
            "evidence": f.col("sources"),
            "alive_here_at": f.col("here_offset"),
            "records": f.col("records"),
        },
    )
