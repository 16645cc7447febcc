"""The input of every checker: each replica's beliefs and the truth, derived once."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, REPLICA_PLACE, Evidence, checkpointed, colocated
from checkers.replay import truth
from checkers.replay.batch_outcomes import BELIEF, open_transactions, overtaken_transactions, with_beliefs
from harness.broker_files.segments.records import DATA
from harness.run_folder.store import AFTER_REJOIN

_BATCH = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "transactional")
_RECORD = (
    "base_offset", "leader_epoch", "offset", "key", "tombstone", "txn", "producer_id", "producer_epoch", "transactional"
)  # fmt: skip


@dataclass(frozen=True)
class ReplicaOnlyEvidence:
    """Evidence from replicas alone, for audits, which have no history of clients.

    ``undeleted_values``: from `undeleted_values`; their keys are not among `Judged.differing_keys`.
    ``overtaken``: from `batch_outcomes.overtaken_transactions`. ``later``: PARTITION, key of every key with a record at
    or beyond the bound that a replica does not believe aborted.
    """

    undeleted_values: DataFrame
    overtaken: DataFrame
    later: DataFrame


@dataclass(frozen=True)
class Judged:
    """DataFrames about the final snapshot; records and keys are limited to offsets that count, up to the bound.

    ``replicas``: the columns of `STATES` and those that `truth` adds: ``counts_from``, ``bound``, ``whole_beyond``,
    ``nothing_beyond``, ``has_transactions``, ``open_from``, ``stable_end``. ``beliefs`` and ``opened``: each replica's
    belief about each batch, and its open transactions, from `batch_outcomes`. ``records``: records with these beliefs.
    ``markers``, ``written``, ``expected``, ``differing_keys``: from the functions of `truth`. ``hidden``: from
    `hidden_records`. ``replica_only``: None if the evidence has a history of clients.
    """

    evidence: Evidence
    replicas: DataFrame
    beliefs: DataFrame
    opened: DataFrame
    records: DataFrame
    markers: DataFrame
    written: DataFrame
    expected: DataFrame
    differing_keys: DataFrame
    hidden: DataFrame
    replica_only: ReplicaOnlyEvidence | None


def transaction_outcomes(judged: Judged) -> DataFrame:
    """Return the outcome of each remaining batch on each replica, for users; ``decided_by``: a marker, or null."""
    return judged.beliefs.where("transactional").select(
        *REPLICA_PLACE, "base_offset", "last_offset", f.col("belief").alias("outcome"), "decided_by"
    )


def judge(evidence: Evidence, replicas: DataFrame | None = None) -> Judged:
    """Derive beliefs and truth. ``replicas``: required if the evidence's entries do not contain the complete logs."""
    rows = checkpointed(with_beliefs(evidence.final))
    beliefs = rows.where("first_in_batch").select(*REPLICA, *_BATCH, *BELIEF)
    opened = checkpointed(open_transactions(beliefs))
    if replicas is None:
        replicas = checkpointed(truth.with_stable_ends(truth.bounded_replicas(evidence), opened))
    compared = replicas.select(*REPLICA, "counts_from", "bound")
    believed = rows.select(*REPLICA, *_RECORD, *BELIEF).join(compared, REPLICA)
    covered = believed.where("offset >= counts_from")
    records = checkpointed(covered.where("offset < bound"))
    markers = checkpointed(truth.markers_seen(evidence))
    written = checkpointed(truth.written_records(evidence, markers, replicas))
    replica_only: ReplicaOnlyEvidence | None = None
    if evidence.has_clients:
        expected = checkpointed(truth.expected_states(written, replicas))
    else:
        # The keys with a record at or beyond the bound that a replica does not believe aborted.
        beyond = covered.where("offset >= bound AND belief != 'aborted'")
        later = checkpointed(beyond.select(*PARTITION, "key").distinct())
        undeleted = checkpointed(undeleted_values(evidence.aborts, records, written, replicas, later))
        undecided = undeleted.select(*PARTITION, "key").unionByName(later).distinct()
        decided_keys = written.join(colocated(undecided), ["key", *PARTITION], "left_anti")
        expected = truth.expected_states(decided_keys, replicas.where("nothing_beyond"))
        overtaken = checkpointed(overtaken_transactions(evidence.final, beliefs))
        replica_only = ReplicaOnlyEvidence(undeleted, overtaken, later)
    wrong = checkpointed(truth.differing_keys(written, records, expected))
    hidden = checkpointed(hidden_records(evidence, written, records, wrong))
    return Judged(evidence, replicas, beliefs, opened, records, markers, written, expected, wrong, hidden, replica_only)


def hidden_records(evidence: Evidence, written: DataFrame, records: DataFrame, differing_keys: DataFrame) -> DataFrame:
    """Return the committed records that a replica hides as aborted, with the evidence for each record.

    REPLICA, offset, key, tombstone, producer_id, txn, ``abort_at``, ``source``: a row per record and source (log,
    txnindex, held: see `committed_to_aborted`, which reports these records; no other checker must report their
    effects). ``abort_at``: the offset of the ABORT that the replica applied to the transaction, null if unknown.
    """
    facts = written.where("truth = 'committed' AND transactional").select(
        *PARTITION, "offset", "key", "tombstone", "producer_id", "txn"
    )
    by_log = (
        records.where("belief = 'aborted'")
        .selectExpr(*REPLICA, "offset", "decided_by AS abort_at", "'log' AS source")
        .join(facts, ["offset", *PARTITION])
    )
    by_index = (
        evidence.aborts.where(f.col("snapshot") == AFTER_REJOIN)
        .selectExpr(*REPLICA, "producer_id", "first_offset", "last_offset AS abort_at", "'txnindex' AS source")
        .join(facts, ["producer_id", *PARTITION])
        .where("offset BETWEEN first_offset AND abort_at")
        .drop("first_offset")
    )
    if evidence.has_clients:
        by_index = by_index.join(_once_held(evidence), ["offset", *REPLICA], "left_semi")
    return by_log.unionByName(by_index).unionByName(_undone_deletes(evidence, differing_keys, facts))


def _once_held(evidence: Evidence) -> DataFrame:
    """Return REPLICA, offset of every record that was ever seen on a replica: in its files, or by the observer.

    A record inside an aborted transaction of the replica's ``.txnindex`` may never have been there: while its broker
    was down, others removed the record and a marker, so that two transactions of a producer became one there.
    """
    appeared = evidence.appeared.where(f.col("kind").isin(*DATA)).select(*REPLICA, "offset")
    return colocated(appeared.unionByName(evidence.entries.select(*REPLICA, "offset")))


def _undone_deletes(evidence: Evidence, differing_keys: DataFrame, facts: DataFrame) -> DataFrame:
    """Return the committed tombstones that a replica removed after the return while the older value is alive."""
    alive = differing_keys.where("true_tombstone AND here_offset < true_offset")
    return (
        alive.selectExpr(*REPLICA, "true_offset AS offset")
        .join(evidence.before_return.select(*REPLICA, "offset"), ["offset", *REPLICA], "left_semi")
        .join(evidence.final.select(*REPLICA, "offset"), ["offset", *REPLICA], "left_anti")
        .join(facts, ["offset", *PARTITION])
        .selectExpr("*", "CAST(NULL AS long) AS abort_at", "'held' AS source")
    )


def undeleted_values(
    aborts: DataFrame, believed: DataFrame, written: DataFrame, replicas: DataFrame, later: DataFrame
) -> DataFrame:
    """Return values that one replica serves and another replica has removed: the evidence when markers are gone.

    REPLICA, key, offset, ``transactional``, ``producer_id``, ``decided_by``, ``own_marker``, ``removed_by`` (the first
    broker that removed it, preferably with an older value alive), ``older_there`` (the offset of that older value, else
    null). ``aborts``: `ABORTS`. ``believed``: every record that counts, up to the bound, with its belief. ``later``:
    PARTITION, key of every key with a record at or beyond the bound that a replica does not believe aborted.

    A cleaner removes a key's last committed record only if a later record of the key exists (another value, or a
    tombstone, which compaction also removes in the end), or if the record was aborted. So if the last record of a key
    on one replica is a value, and another replica, whose log covers that offset, has no record of the key at or after
    that offset, then the replica that still *has* the value missed a record or a marker. One replica without the value
    outweighs any number of replicas with it, unless that replica was truncated, which looks the same. Where any log was
    cleaned beyond the shortest log end, nothing is reported: a record that others have yet to copy may be the cause.

    Legal: a log that starts later, and a key that has a later record at or beyond the bound. Other checkers report a
    value whose transaction is known to be aborted, a key with a later tombstone on any replica, and a key with a later
    record in an open transaction.

    ``own_marker``: whether the deciding marker is probably the transaction's own, as its producer epoch is the next
    one. From transactions v2 on, each end of a transaction increments the producer epoch. In v1 a marker has the epoch
    of the data, as has the marker of the next transaction (KIP-890), unless the producer starts again in between.
    """
    records = colocated(believed.join(written.select(*PARTITION, "offset", "truth"), ["offset", *PARTITION]))
    facts = ("offset", "tombstone", "transactional", "producer_id", "producer_epoch", "decided_by", "decided_in_epoch")
    last_committed = f.when(f.col("belief") == "committed", f.struct(*facts, "truth"))
    here = records.groupBy("key", *REPLICA).agg(
        f.max(last_committed).alias("last"),
        f.expr("max(if(belief = 'aborted' AND truth <=> 'aborted', NULL, offset))").alias("reaches"),
        f.expr("max(if(belief = 'open', offset, NULL))").alias("open_at"),
    )
    decided = here.where("open_at IS NULL OR open_at < last.offset").join(later, ["key", *PARTITION], "left_anti")
    alive = decided.where("NOT last.tombstone AND NOT last.truth <=> 'aborted'")
    tombstones = written.where("truth = 'committed' AND tombstone").groupBy("key", *PARTITION)
    deleted = tombstones.agg(f.max("offset").alias("deleted_at"))
    others = replicas.where("nothing_beyond").selectExpr(*PARTITION, "broker AS removed_by", "log_start")
    there = here.selectExpr(*PARTITION, "broker AS removed_by", "key", "last AS last_there", "reaches")
    return (
        colocated(alive.select(*REPLICA, "key", "last").join(others, PARTITION))
        .join(deleted, ["key", *PARTITION], "left")
        .where("deleted_at IS NULL OR deleted_at < last.offset")
        .where("log_start <= last.offset")
        # Each replica is also joined with itself, which reaches the offset of the value.
        .join(there, ["removed_by", "key", *PARTITION], "left")
        .where("reaches IS NULL OR reaches < last.offset")
        .join(colocated(_aborted_by_index(aborts, alive)), ["key", "removed_by", *REPLICA], "left_anti")
        .withColumn("older_there", f.expr("if(last_there.tombstone, NULL, last_there.offset)"))
        .groupBy("key", *REPLICA)
        .agg(
            f.first("last").alias("last"),
            f.expr("min(struct(older_there IS NULL, removed_by, older_there))").alias("remover"),
        )
        .select(*REPLICA, "key", *(f"last.{name}" for name in facts), "remover.removed_by", "remover.older_there")
        .withColumn("own_marker", f.expr("coalesce(decided_in_epoch = producer_epoch + 1, false)"))
        .drop("tombstone")
    )


def _aborted_by_index(aborts: DataFrame, alive: DataFrame) -> DataFrame:
    """Return REPLICA, key, ``removed_by``: values whose transaction the ``.txnindex`` of ``removed_by`` lists.

    The removal of such a value does not show which replica is wrong: a marker shows which outcome is right. A value
    that has lost its transactional bit does not count (see `aborted_to_committed`).
    """
    spans = aborts.selectExpr(*PARTITION, "broker AS removed_by", "producer_id", "first_offset", "last_offset")
    values = alive.where("last.transactional").selectExpr(*REPLICA, "key", "last.offset AS at", "last.producer_id")
    return (
        colocated(values.join(spans, ["producer_id", *PARTITION]))
        .where("at BETWEEN first_offset AND last_offset")
        .select(*REPLICA, "key", "removed_by")
    )
