"""Decides which of several ``.txnindex`` spans of an aborted transaction is right, by a witness that received it all.

A replica whose span starts earlier than that of a witness has missed a marker in between: at that marker another
transaction of the witness ends. Whether the other transaction was committed is no longer recorded, so the finding has
candidates. A span that is shorter than the witness's belongs to a replica that copied a log after it was cleaned:
legal.

Only a witness that was not restarted since counts: a recovery after a crash rebuilds the index of a segment from what
cleaning has left of it (`LogSegment.recover`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from checkers.attribution.coverage import Coverage
from checkers.finding import LATENT, UNEXPLAINED_DIVERGENCE
from harness.plan.catalog import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.audit.knowledge import Knowledge

Row: TypeAlias = "dict[str, Any]"


def attribute_spans(rows: Iterable[Row], knowledge: Knowledge) -> tuple[list[Row], list[Row]]:
    """Return findings, and the undecided rows of `checkers.consistency.txnindex_disagreement`."""
    findings: list[Row] = []
    undecided: list[Row] = []
    for row in rows:
        reasons = _witness_reasons(row, knowledge.coverage.get((row["topic"], row["partition"]), Coverage()))
        starts = {span["first_offset"] for span in row["spans"] if span["broker"] in reasons}
        if len(starts) == 1:
            findings += _findings(row, reasons, starts.pop())
        else:
            undecided.append(row)
    return findings, undecided


def _witness_reasons(row: Row, coverage: Coverage) -> dict[int, str]:
    """Return the proof that each broker received the whole span, by broker."""
    if row["leader_epoch"] is None:
        return {}
    proofs = {span["broker"]: coverage.received(span["broker"], row["leader_epoch"]) for span in row["spans"]}
    return {broker: proof.reason for broker, proof in proofs.items() if proof is not None and not proof.assumptions}


def _findings(row: Row, reasons: dict[int, str], start: int) -> Iterable[Row]:
    witness = min(reasons)
    for span in row["spans"]:
        if span["first_offset"] < start:
            yield {
                "anomaly": UNEXPLAINED_DIVERGENCE,
                "candidates": [UNEXPLAINED_DIVERGENCE, str(Anomaly.COMMITTED_TO_ABORTED)],
                "broker": span["broker"],
                "topic": row["topic"],
                "partition": row["partition"],
                "offset": span["first_offset"],
                "key": None,
                "producer_id": row["producer_id"],
                "effect": LATENT,
                "explanation": (
                    f"a marker of producer {row['producer_id']} is missing: this broker counts all that the producer "
                    f"wrote from offset {span['first_offset']} to {row['last_offset']} as one aborted transaction, and "
                    f"broker {witness}, which received every record, only from {start} on; none of its records is left"
                ),
                "witness": {
                    "span_here_from": span["first_offset"],
                    "span_to": row["last_offset"],
                    "other_broker": witness,
                    "span_there_from": start,
                },
                "decided": True,
                "decided_by": [f"broker {broker} {reason}" for broker, reason in reasons.items()],
                "assumptions": [],
                "right": sorted(reasons),
                "disagree": [],
            }
