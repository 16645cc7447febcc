"""The input of every checker: each replica's beliefs and the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, REPLICA_PLACE, Evidence, checkpointed, colocated
from checkers.replay.batch_outcomes import BELIEF, open_transactions, overtaken_transactions, with_beliefs
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
    ``hidden``: committed records that a replica hides, from `hidden.hidden_records`.
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
