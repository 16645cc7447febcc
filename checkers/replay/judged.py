"""The input of every checker: each replica's beliefs and the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, REPLICA_PLACE, Evidence, checkpointed, colocated
from checkers.replay.batch_outcomes import BELIEF, decided, open_transactions, overtaken_transactions
from checkers.replay.hidden import hidden_records
from checkers.replay.truth import (
    bounded_replicas,
    differing_keys,
    expected_states,
    later_keys,
    markers_seen,
    with_stable_ends,
    written_records,
)
from checkers.replay.undeleted_values import undeleted_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_BATCH = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "transactional")
_RECORD = (
    "base_offset", "leader_epoch", "offset", "key", "tombstone", "txn", "producer_id", "producer_epoch", "transactional"
)  # fmt: skip


@dataclass(frozen=True)
class ReplicaOnlyEvidence:
    """Evidence from replicas alone, for audits, which have no history of clients.

    ``undeleted_values``: values that another replica has removed, from `undeleted_values.undeleted_values`; their keys
    are not among `Judged.differing_keys`. ``overtaken``: transactions for which the log alone shows that a marker was
    missed, from `batch_outcomes.overtaken_transactions`.
    """

    undeleted_values: DataFrame
    overtaken: DataFrame


@dataclass(frozen=True)
class Judged:
    """DataFrames about the final snapshot; records and keys are limited to offsets that count, up to the bound.

    ``replicas``: REPLICA columns with ``log_start``, ``counts_from``, ``log_end``, ``high_watermark``,
    ``last_stable_offset``, ``aborted``, ``open``, ``bound``, ``whole_beyond``, ``nothing_beyond``, ``has_transactions``
    (see `truth`) and ``stable_end``: the last stable offset, derived from the log where the broker was not asked.
    ``beliefs``: each replica's belief about each batch, from `batch_outcomes.decided`.
    ``opened``: the transactions that are open in each log, from `batch_outcomes.open_transactions`.
    ``records``: records with their replica's belief about their batch.
    ``markers``: PARTITION, producer_id, marker_offset, outcome: every marker that was ever seen on any replica.
    ``written``: PARTITION, offset, key, tombstone, txn, transactional, producer_id, truth, ``first_marker`` (the offset
    of its producer's first marker after it): every record with a key that is known to have been written.
    ``expected``: the final state of each key that each replica has to give, from `truth.expected_states`.
    ``differing_keys``: REPLICA, key, the true last record (``true_*``) and the last record that the replica believes
    committed (``here_*``) of every key where the two differ in effect.
    ``hidden``: committed records that a replica hides, from `hidden.hidden_records`.
    ``replica_only``: evidence from replicas alone; None where the evidence has a history of clients.
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
    """Return the outcome that each replica gives to each transactional batch, for people to read beside the findings.

    REPLICA, ``base_offset``, ``last_offset``, ``outcome`` (committed, aborted or open) and ``decided_by``: the offset
    of the marker, null where there is none. There is no row for a batch that compaction has removed.
    """
    return judged.beliefs.where("transactional").select(
        *REPLICA_PLACE, "base_offset", "last_offset", f.col("belief").alias("outcome"), "decided_by"
    )


def judge(evidence: Evidence, replicas: DataFrame | None = None) -> Judged:
    """Derive beliefs and truth from the evidence.

    ``replicas``: as in `Judged`; to be given where the evidence's entries do not contain the whole logs.
    """
    rows = checkpointed(decided(evidence.final))
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
        later = checkpointed(later_keys(covered))
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
