"""aborted-to-committed: a replica counts data of an aborted transaction as committed and serves it.

Verifies: every record below the bound that a replica still has and believes committed, against the transaction's true
outcome (see `truth`). A record without its transactional bit is believed committed too: Redpanda's compaction removes
the bit from records that it believes committed. A finding has the first such record of a transaction on a replica.
Without a history of clients, and where no marker shows the outcome any more: a transactional value that another replica
has removed while an older value of the key is alive there, as only an abort does (see `undeleted_values`).
Does not verify: aborted records that the replica has compacted away; transactions whose outcome neither the client nor
any marker shows.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, at_first, colocated
from checkers.finding import Finder, findings, sentence, visible_before_stable_end
from checkers.replay.judged import Judged
from harness.schedules.catalog import Anomaly


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first aborted record that is served."""
    aborted = judged.written.where("truth = 'aborted'").selectExpr(*PARTITION, "offset", "txn AS true_txn")
    served = (
        judged.records.where("belief = 'committed'")
        .join(aborted, ["offset", *PARTITION])
        .groupBy("producer_id", "decided_by", "true_txn", *REPLICA)
        .agg(*at_first("offset", "key", "tombstone"), f.count("*").alias("records"))
    )
    by_marker = _findings(
        judged,
        served,
        sentence(
            "aborted {what} {key!r} is {done}: transaction {true_txn!r:?} (producer {producer_id}) was aborted, and "
            "this broker {how}",
            what="if(tombstone, 'delete of', 'record')",
            done="if(tombstone, 'carried out', 'served as committed')",
            how="coalesce(concat('applies the COMMIT at offset ', decided_by, ' to the transaction'), "
            "'holds it as if it had not been part of a transaction')",
        ),
        "true_txn AS transaction, 'aborted' AS outcome, 'committed' AS believed_here, "
        "decided_by AS marker_taken_here_at, records",
    )
    if judged.replica_only is None:
        return by_marker
    by_removal = _findings(
        judged,
        judged.replica_only.undeleted_values.where("transactional AND NOT own_marker AND older_there IS NOT NULL"),
        sentence(
            "record {key!r} of producer {producer_id} is served as committed, by the COMMIT at offset {decided_by}: "
            "broker {removed_by} has removed it and still has the older value of offset {older_there}, as after an "
            "abort"
        ),
        "'aborted' AS outcome, 'committed' AS believed_here, decided_by AS marker_taken_here_at, "
        "removed_by AS removed_by_broker, older_there AS older_value_there_at",
    )
    return by_marker.unionByName(by_removal)


def _findings(judged: Judged, served: DataFrame, explanation: Column, witness: str) -> DataFrame:
    return findings(
        colocated(served).join(judged.replicas.select(*REPLICA, "stable_end"), REPLICA),
        Anomaly.ABORTED_TO_COMMITTED,
        effect=visible_before_stable_end(),
        proven=False,
        explanation=explanation,
        witness=witness,
    )


FINDER = Finder(
    name=Anomaly.ABORTED_TO_COMMITTED,
    check=check,
    means="broker {broker} serves records of an aborted transaction as committed: read_committed consumers receive "
    "them, and an aborted delete removes the key's value. The broker missed the ABORT, and applied the next marker of "
    "the producer to the transaction",
)
