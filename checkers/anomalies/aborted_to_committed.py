"""aborted-to-committed: a replica counts data of an aborted transaction as committed and serves it.

Verifies: every record below the bound that a replica still has and believes committed, against the transaction's true
outcome (see `truth`). A record without its transactional bit is believed committed too: Redpanda's compaction removes
the bit from records that it believes committed. A finding has the first such record of a transaction on a replica.

Without a history of clients, and where no marker shows the outcome any more: a transactional value that another replica
has removed while an older value of the key is alive there. Only an abort removes a value and keeps the older one (see
`undeleted_values`).

Does not verify: aborted records that the replica has compacted away; transactions whose outcome neither the client nor
any marker shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import Finder, findings, printable, sentence, visible_before_stable_end
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged, ReplicaOnlyEvidence


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first aborted record that is served."""
    rows = _by_marker(judged)
    return rows if judged.replica_only is None else rows.unionByName(_by_removal(judged, judged.replica_only))


def _by_marker(judged: Judged) -> DataFrame:
    aborted = judged.written.where(f.col("truth") == ABORTED).select(
        *PARTITION, "offset", f.col("txn").alias("true_txn")
    )
    served = (
        judged.records.where(f.col("belief") == COMMITTED)
        .join(aborted, ["offset", *PARTITION])
        .groupBy("producer_id", "decided_by", "true_txn", *REPLICA)
        .agg(
            f.min("offset").alias("offset"),
            f.min_by("key", "offset").alias("key"),
            f.min_by("tombstone", "offset").alias("tombstone"),
            f.count("*").alias("records"),
        )
    )
    there = colocated(served).join(judged.replicas.select(*REPLICA, "stable_end"), REPLICA)
    return findings(
        there,
        Anomaly.ABORTED_TO_COMMITTED,
        effect=visible_before_stable_end(),
        proven=f.lit(False),
        explanation=sentence(
            "aborted {what} {key} is {done}: transaction {true_txn} (producer {producer_id}) was aborted, and this "
            "broker {how}",
            what=f.when(f.col("tombstone"), "delete of").otherwise("record"),
            key=printable("key"),
            done=f.when(f.col("tombstone"), "carried out").otherwise("served as committed"),
            true_txn=printable("true_txn", none="?"),
            how=f.when(
                f.col("decided_by").isNotNull(),
                sentence("applies the COMMIT at offset {decided_by} to the transaction"),
            ).otherwise("holds it as if it had not been part of a transaction"),
        ),
        witness={
            "transaction": f.col("true_txn"),
            "outcome": f.lit(ABORTED),
            "believed_here": f.lit(COMMITTED),
            "marker_taken_here_at": f.col("decided_by"),
            "records": f.col("records"),
        },
    )


def _by_removal(judged: Judged, replica_only: ReplicaOnlyEvidence) -> DataFrame:
    aborted = replica_only.undeleted_values.where("transactional AND NOT own_marker AND older_there IS NOT NULL")
    there = colocated(aborted).join(judged.replicas.select(*REPLICA, "stable_end"), REPLICA)
    return findings(
        there,
        Anomaly.ABORTED_TO_COMMITTED,
        effect=visible_before_stable_end(),
        proven=f.lit(False),
        explanation=sentence(
            "record {key} of producer {producer_id} is served as committed, by the COMMIT at offset {decided_by}: "
            "broker {removed_by} has removed it and still has the older value of offset {older_there}, as after an "
            "abort",
            key=printable("key"),
        ),
        witness={
            "outcome": f.lit(ABORTED),
            "believed_here": f.lit(COMMITTED),
            "marker_taken_here_at": f.col("decided_by"),
            "removed_by_broker": f.col("removed_by"),
            "older_value_there_at": f.col("older_there"),
        },
    )


FINDER = Finder(
    name=Anomaly.ABORTED_TO_COMMITTED,
    check=check,
    means=(
        "broker {broker} serves records of an aborted transaction as committed: read_committed consumers receive them, "
        "and an aborted delete removes the key's value. The broker missed the ABORT, and applied the next marker of "
        "the producer to the transaction"
    ),
)
