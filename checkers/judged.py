"""What every checker compares: each replica's beliefs beside the truth, derived once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers.evidence import REPLICA, Evidence, held, in_one
from checkers.hidden import hidden_records
from checkers.replay import believed_records, open_transactions, replay
from checkers.truth import bounded_replicas, differing_keys, known_records, markers_seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Judged:
    """DataFrames about the final snapshot; records and keys are cut to what lies from the log start to the bound.

    ``replicas``: REPLICA columns with ``log_start``, ``log_end``, ``high_watermark``,
    ``last_stable_offset``, ``aborted``, ``open``, ``bound``.
    ``opened``: the transactions that each log leaves open, as `replay.open_transactions` gives them.
    ``records``: records with what their replica believes, as `replay.believed_records` gives them.
    ``markers``: PARTITION, producer_id, marker_offset, outcome: every marker ever seen anywhere.
    ``known``: PARTITION, offset, key, tombstone, txn, transactional, producer_id, truth: every record that
    is known to have been written.
    ``differing_keys``: REPLICA, key, the true last record (``true_*``) and the last one believed here
    (``here_*``) of every key where the two differ in effect.
    ``hidden``: committed records that a replica hides, as `hidden.hidden_records` gives them.
    """

    evidence: Evidence
    replicas: DataFrame
    opened: DataFrame
    records: DataFrame
    markers: DataFrame
    known: DataFrame
    differing_keys: DataFrame
    hidden: DataFrame


def judge(evidence: Evidence) -> Judged:
    """Derive beliefs and truth from the evidence."""
    replicas = held(bounded_replicas(evidence))
    beliefs = held(replay(evidence.final))
    compared = replicas.select(*REPLICA, "log_start", "bound")
    believed = in_one(believed_records(evidence.final, beliefs)).join(compared, REPLICA)
    records = held(believed.where("offset < bound AND offset >= log_start"))
    markers = held(markers_seen(evidence))
    known = held(known_records(evidence, markers, replicas))
    wrong = held(differing_keys(known, records, replicas))
    return Judged(
        evidence=evidence,
        replicas=replicas,
        opened=held(open_transactions(beliefs)),
        records=records,
        markers=markers,
        known=known,
        differing_keys=wrong,
        hidden=held(hidden_records(evidence, known, records, wrong)),
    )
