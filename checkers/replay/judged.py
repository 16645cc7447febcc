"""What every checker compares: each replica's beliefs beside the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers.evidence.tables import PARTITION, REPLICA, Evidence, held, in_one
from checkers.replay.batch_outcomes import (
    believed_records,
    open_transactions,
    overtaken_transactions,
    replay,
)
from checkers.replay.hidden import hidden_records
from checkers.replay.survivors import surviving_values
from checkers.replay.truth import (
    bounded_replicas,
    differing_keys,
    known_records,
    later_keys,
    markers_seen,
    with_stable_ends,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Alone:
    """What replicas tell by themselves.

    ``survivors``: values that another replica has removed, as `survivors.surviving_values` gives them; these keys are
    not among `Judged.differing_keys`. ``overtaken``: transactions of which the log alone shows that a marker was
    missed, as `replay.overtaken_transactions` gives them.
    """

    survivors: DataFrame
    overtaken: DataFrame


@dataclass(frozen=True)
class Judged:
    """DataFrames about the final snapshot; records and keys are cut to what lies from the log start to the bound.

    ``replicas``: REPLICA columns with ``log_start``, ``log_end``, ``high_watermark``,
    ``last_stable_offset``, ``aborted``, ``open``, ``bound``, ``whole_beyond``, ``nothing_beyond``, ``has_transactions``
    (see `truth`) and ``stable_end``: the last stable offset, or where the broker was not asked what its log gives.
    ``beliefs``: what each replica believes of each batch, as `replay.replay` gives them.
    ``opened``: the transactions that each log leaves open, as `replay.open_transactions` gives them.
    ``records``: records with what their replica believes, as `replay.believed_records` gives them.
    ``markers``: PARTITION, producer_id, marker_offset, outcome: every marker ever seen anywhere.
    ``known``: PARTITION, offset, key, tombstone, txn, transactional, producer_id, truth, ``first_marker`` (the offset
    of its producer's first marker after it): every record with a key that is known to have been written.
    ``differing_keys``: REPLICA, key, the true last record (``true_*``) and the last one believed here
    (``here_*``) of every key where the two differ in effect.
    ``hidden``: committed records that a replica hides, as `hidden.hidden_records` gives them.
    ``alone``: what else replicas tell where no client is known; None where one is.
    """

    evidence: Evidence
    replicas: DataFrame
    beliefs: DataFrame
    opened: DataFrame
    records: DataFrame
    markers: DataFrame
    known: DataFrame
    differing_keys: DataFrame
    hidden: DataFrame
    alone: Alone | None


def judge(evidence: Evidence, replicas: DataFrame | None = None) -> Judged:
    """Derive beliefs and truth from the evidence.

    ``replicas``: as in `Judged`, where the evidence's entries do not tell how far logs go.
    """
    beliefs = held(replay(evidence.final))
    opened = held(open_transactions(beliefs))
    if replicas is None:
        replicas = held(with_stable_ends(bounded_replicas(evidence), opened))
    compared = replicas.select(*REPLICA, "log_start", "bound")
    believed = in_one(believed_records(evidence.final, beliefs)).join(compared, REPLICA)
    covered = held(believed.where("offset >= log_start"))
    records = held(covered.where("offset < bound"))
    markers = held(markers_seen(evidence))
    known = held(known_records(evidence, markers, replicas))
    alone: Alone | None = None
    if evidence.has_clients:
        wrong = held(differing_keys(known, records, replicas))
    else:
        later = held(later_keys(covered))
        survivors = held(surviving_values(evidence.aborts, records, known, replicas, later))
        undecided = survivors.select(*PARTITION, "key").unionByName(later).distinct()
        wrong = held(differing_keys(known, records, replicas.where("nothing_beyond"), in_one(undecided)))
        alone = Alone(survivors, held(overtaken_transactions(evidence.final, beliefs)))
    return Judged(
        evidence=evidence,
        replicas=replicas,
        beliefs=beliefs,
        opened=opened,
        records=records,
        markers=markers,
        known=known,
        differing_keys=wrong,
        hidden=held(hidden_records(evidence, known, records, wrong)),
        alone=alone,
    )
