"""committed-to-aborted: a replica counts data of a committed transaction as aborted and hides it.

Verifies three kinds of evidence (see `hidden`), against each transaction's true outcome (see `truth`):

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

from checkers.evidence import REPLICA
from checkers.finding import LATENT, VISIBLE, findings, printable
from checkers.replay import ABORTED, COMMITTED
from harness.scenario import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first committed record that is hidden."""
    last_of_wrong_keys = judged.differing_keys.select(
        *REPLICA, f.col("true_offset").alias("offset"), "here_offset", f.lit(True).alias("differs")
    )
    hidden = (
        judged.hidden.join(last_of_wrong_keys, [*REPLICA, "offset"], "left")
        .groupBy(*REPLICA, "producer_id", "txn")
        .agg(
            f.min("offset").alias("offset"),
            f.min_by("key", "offset").alias("key"),
            f.min_by("tombstone", "offset").alias("tombstone"),
            f.min_by("here_offset", "offset").alias("here_offset"),
            f.max("abort_at").alias("abort_at"),
            f.sort_array(f.collect_set("source")).alias("sources"),
            f.max(f.coalesce("differs", f.lit(False))).alias("differs"),
            f.size(f.collect_set("offset")).alias("records"),
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
            "committed %s %s is hidden as aborted: transaction %s (producer %d) was committed, and this "
            "broker takes %s for its end; %s",
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
