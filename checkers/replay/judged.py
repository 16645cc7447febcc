"""The input of every checker: each replica's beliefs and the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers.evidence.tables import PARTITION, REPLICA, Evidence, checkpointed, colocated
from checkers.replay.batch_outcomes import (
    believed_records,
    open_transactions,
    overtaken_transactions,
    replay,
)
from checkers.replay.hidden import hidden_records
from checkers.replay.truth import (
    bounded_replicas,
    differing_keys,
    later_keys,
    markers_seen,
    with_stable_ends,
    written_records,
)
from checkers.replay.undeleted_values import undeleted_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    """DataFrames about the final snapshot; records and keys are limited to offsets from the log start to the bound.

    ``replicas``: REPLICA columns with ``log_start``, ``log_end``, ``high_watermark``,
    ``last_stable_offset``, ``aborted``, ``open``, ``bound``, ``whole_beyond``, ``nothing_beyond``, ``has_transactions``
    (see `truth`) and ``stable_end``: the last stable offset, derived from the log where the broker was not asked.
    ``beliefs``: each replica's belief about each batch, from `batch_outcomes.replay`.
    ``opened``: the transactions that are open in each log, from `batch_outcomes.open_transactions`.
    ``records``: records with their replica's belief, from `batch_outcomes.believed_records`.
    ``markers``: PARTITION, producer_id, marker_offset, outcome: every marker that was ever seen on any replica.
    ``written``: PARTITION, offset, key, tombstone, txn, transactional, producer_id, truth, ``first_marker`` (the offset
    of its producer's first marker after it): every record with a key that is known to have been written.
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
    differing_keys: DataFrame
    hidden: DataFrame
    replica_only: ReplicaOnlyEvidence | None


def judge(evidence: Evidence, replicas: DataFrame | None = None) -> Judged:
    """Derive beliefs and truth from the evidence.

    ``replicas``: as in `Judged`; to be given where the evidence's entries do not contain the whole logs.
    """
    beliefs = checkpointed(replay(evidence.final))
    opened = checkpointed(open_transactions(beliefs))
    if replicas is None:
        replicas = checkpointed(with_stable_ends(bounded_replicas(evidence), opened))
    compared = replicas.select(*REPLICA, "log_start", "bound")
    believed = colocated(believed_records(evidence.final, beliefs)).join(compared, REPLICA)
    covered = checkpointed(believed.where("offset >= log_start"))
    records = checkpointed(covered.where("offset < bound"))
    markers = checkpointed(markers_seen(evidence))
    written = checkpointed(written_records(evidence, markers, replicas))
    replica_only: ReplicaOnlyEvidence | None = None
    if evidence.has_clients:
        wrong = checkpointed(differing_keys(written, records, replicas))
    else:
        later = checkpointed(later_keys(covered))
        undeleted = checkpointed(undeleted_values(evidence.aborts, records, written, replicas, later))
        undecided = undeleted.select(*PARTITION, "key").unionByName(later).distinct()
        wrong = checkpointed(differing_keys(written, records, replicas.where("nothing_beyond"), colocated(undecided)))
        replica_only = ReplicaOnlyEvidence(undeleted, checkpointed(overtaken_transactions(evidence.final, beliefs)))
    return Judged(
        evidence=evidence,
        replicas=replicas,
        beliefs=beliefs,
        opened=opened,
        records=records,
        markers=markers,
        written=written,
        differing_keys=wrong,
        hidden=checkpointed(hidden_records(evidence, written, records, wrong)),
        replica_only=replica_only,
    )
