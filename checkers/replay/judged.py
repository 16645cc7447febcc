"""The input of every checker: each replica's beliefs and the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, REPLICA_PLACE, Evidence, checkpointed, colocated
from checkers.replay.batch_outcomes import BELIEF, open_transactions, overtaken_transactions, with_beliefs
from checkers.replay.truth import (
    bounded_replicas,
    differing_keys,
    expected_states,
    markers_seen,
    with_stable_ends,
    written_records,
)
from checkers.replay.undeleted_values import undeleted_values
from harness.broker_files.segments.records import DATA
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_BATCH = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "transactional")
_RECORD = (
    "base_offset", "leader_epoch", "offset", "key", "tombstone", "txn", "producer_id", "producer_epoch", "transactional"
)  # fmt: skip


@dataclass(frozen=True)
class ReplicaOnlyEvidence:
    """Evidence from replicas alone, for audits, which have no history of clients.

    ``undeleted_values``: from `undeleted_values.undeleted_values`; their keys are not among `Judged.differing_keys`.
    ``overtaken``: from `batch_outcomes.overtaken_transactions`.
    """

    undeleted_values: DataFrame
    overtaken: DataFrame


@dataclass(frozen=True)
class Judged:
    """DataFrames about the final snapshot; records and keys are limited to offsets that count, up to the bound.

    ``replicas``: the columns of `STATES` and those that `truth` adds: ``counts_from``, ``bound``, ``whole_beyond``,
    ``nothing_beyond``, ``has_transactions``, ``open_from``, ``stable_end``.
    ``beliefs``: each replica's belief about each batch, from `batch_outcomes.with_beliefs`.
    ``opened``: the transactions that are open in each log, from `batch_outcomes.open_transactions`.
    ``records``: records with their replica's belief about their batch.
    ``markers``: every marker that was ever seen on any replica, from `truth.markers_seen`.
    ``written``: every record with a key that is known to have been written, from `truth.written_records`.
    ``expected``: the final state of each key that each replica must give, from `truth.expected_states`.
    ``differing_keys``: the keys whose final state on a replica is wrong, from `truth.differing_keys`.
    ``hidden``: committed records that a replica hides, from `hidden_records`.
    ``replica_only``: evidence from replicas alone; None if the evidence has a history of clients.
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
    """Return the outcome that each replica gives to each transactional batch, for users.

    REPLICA, ``base_offset``, ``last_offset``, ``outcome`` (committed, aborted or open) and ``decided_by``: the offset
    of the marker, or null. Removed batches have no row.
    """
    return judged.beliefs.where("transactional").select(
        *REPLICA_PLACE, "base_offset", "last_offset", f.col("belief").alias("outcome"), "decided_by"
    )


def judge(evidence: Evidence, replicas: DataFrame | None = None) -> Judged:
    """Derive beliefs and truth from the evidence.

    ``replicas``: as in `Judged`; required if the evidence's entries do not contain the complete logs.
    """
    rows = checkpointed(with_beliefs(evidence.final))
    beliefs = rows.where("first_in_batch").select(*REPLICA, *_BATCH, *BELIEF)
    opened = checkpointed(open_transactions(beliefs))
    if replicas is None:
        replicas = checkpointed(with_stable_ends(bounded_replicas(evidence), opened))
    compared = replicas.select(*REPLICA, "counts_from", "bound")
    believed = rows.select(*REPLICA, *_RECORD, *BELIEF).join(compared, REPLICA)
    covered = believed.where("offset >= counts_from")
    records = checkpointed(covered.where("offset < bound"))
    markers = checkpointed(markers_seen(evidence))
    written = checkpointed(written_records(evidence, markers, replicas))
    replica_only: ReplicaOnlyEvidence | None = None
    if evidence.has_clients:
        expected = checkpointed(expected_states(written, replicas))
    else:
        # The keys with a record at or beyond the bound that a replica does not believe aborted.
        later = checkpointed(
            covered.where("offset >= bound AND belief != 'aborted'").select(*PARTITION, "key").distinct()
        )
        undeleted = checkpointed(undeleted_values(evidence.aborts, records, written, replicas, later))
        undecided = undeleted.select(*PARTITION, "key").unionByName(later).distinct()
        decided_keys = written.join(colocated(undecided), ["key", *PARTITION], "left_anti")
        expected = expected_states(decided_keys, replicas.where("nothing_beyond"))
        replica_only = ReplicaOnlyEvidence(undeleted, checkpointed(overtaken_transactions(evidence.final, beliefs)))
    wrong = checkpointed(differing_keys(written, records, expected))
    return Judged(
        evidence=evidence,
        replicas=replicas,
        beliefs=beliefs,
        opened=opened,
        records=records,
        markers=markers,
        written=written,
        expected=expected,
        differing_keys=wrong,
        hidden=checkpointed(hidden_records(evidence, written, records, wrong)),
        replica_only=replica_only,
    )


def hidden_records(evidence: Evidence, written: DataFrame, records: DataFrame, differing_keys: DataFrame) -> DataFrame:
    """Return the committed records that a replica hides as aborted, with the evidence for each record.

    REPLICA, offset, key, tombstone, producer_id, txn, ``abort_at``, ``source``: a row per record and source (log,
    txnindex, held: see `committed_to_aborted`). ``abort_at`` is the offset of the ABORT that the replica applied to the
    transaction, null if that offset is unknown. `committed_to_aborted` reports these records; other checkers must not
    report their effects as another anomaly.
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

    A record inside the range of an aborted transaction in the replica's ``.txnindex`` may never have been on that
    replica: while its broker was down, other replicas removed the record and a marker, so that two transactions of a
    producer became one on this replica.
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
