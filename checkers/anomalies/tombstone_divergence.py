"""tombstone-divergence: a replica never had a key's tombstone and keeps serving the deleted value.

Verifies: every key whose last committed record is a tombstone below the bound, against the last record that each
replica believes committed. A replica is wrong if it serves an older value and has no record, committed, aborted or
open, at the tombstone's offset. Legal: a tombstone that a replica still has; a value that is gone; logs that start
later.

A replica may also have had a transactional tombstone and have believed it aborted (committed-to-aborted). It is not
this anomaly where the replica's ``.txnindex`` or its files before the return show that, and it cannot have happened
where the replica has the transaction's own marker. Or the tombstone was aborted, and a replica that still has it, or
has removed the value because of it, is wrong (aborted-to-committed): the history of clients shows that. Without a
history the names are ``candidates``.

Without a history of clients, and where the tombstone is gone on every replica: a value that another replica has removed
and of whose key that replica has no record left (see `undeleted_values`). In a partition with transactions, all three
names are ``candidates``.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import VISIBLE, Finder, findings, sentence, visible_before_stable_end
from checkers.replay.judged import Judged, ReplicaOnlyEvidence
from harness.schedules.catalog import Anomaly


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where the deleted value lies."""
    rows = _by_tombstone(judged)
    return rows if judged.replica_only is None else rows.unionByName(_by_removal(judged, judged.replica_only))


def _by_tombstone(judged: Judged) -> DataFrame:
    present = judged.records.selectExpr(*REPLICA, "offset AS true_offset")
    misjudged = judged.hidden.selectExpr(*REPLICA, "offset AS true_offset")
    seen_before = judged.evidence.before_return.selectExpr(*REPLICA, "true AS seen_before").distinct()
    tombstones = judged.written.selectExpr(
        *PARTITION, "offset AS true_offset", "transactional", "txn", "producer_id", "first_marker"
    )
    markers_here = judged.evidence.final.where("marker IS NOT NULL").selectExpr(
        *REPLICA, "last_offset AS first_marker", "true AS marker_here"
    )
    missing = (
        judged.differing_keys.where("true_tombstone AND here_truth = 'committed'")
        .join(present, ["true_offset", *REPLICA], "left_anti")
        .join(misjudged, ["true_offset", *REPLICA], "left_anti")
        .join(seen_before, REPLICA, "left")
        .join(tombstones, ["true_offset", *PARTITION])
        .join(markers_here, ["first_marker", *REPLICA], "left")
    )
    in_transaction = f.col("transactional")
    is_unknown = f.col("seen_before").isNull() & f.col("marker_here").isNull()
    return findings(
        missing,
        Anomaly.TOMBSTONE_DIVERGENCE,
        offset="here_offset",
        candidates=_candidates(
            aborted=in_transaction & f.lit(judged.replica_only is not None), hidden=in_transaction & is_unknown
        ),
        effect=VISIBLE,
        proven=~in_transaction,
        explanation=sentence(
            "deleted key {key!r} is back: it was deleted at offset {true_offset}, and this broker has no tombstone "
            "there and serves the value of offset {here_offset}"
        ),
        witness="true_offset AS deleted_at, here_offset AS alive_here_at, txn AS transaction_of_the_delete",
    )


def _candidates(aborted: Column, hidden: Column) -> Column:
    """Return this anomaly and the other names that apply; an empty array if no other name applies."""
    others = (f.when(aborted, str(Anomaly.ABORTED_TO_COMMITTED)), f.when(hidden, str(Anomaly.COMMITTED_TO_ABORTED)))
    names = f.array_compact(f.array(f.lit(str(Anomaly.TOMBSTONE_DIVERGENCE)), *others))
    return f.when(f.size(names) > 1, names).otherwise(f.array().cast("array<string>"))


def _by_removal(judged: Judged, replica_only: ReplicaOnlyEvidence) -> DataFrame:
    removed = colocated(replica_only.undeleted_values.where("older_there IS NULL")).join(
        judged.replicas.select(*REPLICA, "stable_end", "has_transactions"), REPLICA
    )
    return findings(
        removed,
        Anomaly.TOMBSTONE_DIVERGENCE,
        candidates=_candidates(aborted=f.col("has_transactions"), hidden=f.col("has_transactions")),
        effect=visible_before_stable_end(),
        proven=False,
        explanation=sentence(
            "key {key!r} is back: this broker serves the value of offset {offset}, and broker {removed_by}, whose log "
            "covers that offset, has removed the value and has no later record of the key"
        ),
        witness="offset AS alive_here_at, removed_by AS removed_by_broker, transactional AS in_a_transaction, "
        "decided_by AS marker_taken_here_at",
    )


FINDER = Finder(
    name=Anomaly.TOMBSTONE_DIVERGENCE,
    check=check,
    means="a deleted key still has its value on broker {broker}, which was down, or not yet in the ISR, while the "
    "tombstone was written and removed",
)
