"""Replicas that differ in a partition whose leader had lost records, and was elected uncleanly."""

from harness.soak.causes.cause import ANOMALIES, Cause, Explained, RoundEvidence, Symptom, Symptoms
from harness.soak.causes.lost_unsynced import Loss
from harness.soak.judge.truth import Truth


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys of these partitions."""
    return {
        symptom: loss
        for loss in evidence.losses
        if loss.led_uncleanly
        for symptom in symptoms
        if symptom.key is not None
        and symptom.partition == loss.partition
        and _may_explain(loss, symptom, evidence.truth)
    }


def _may_explain(loss: Loss, symptom: Symptom, truth: Truth) -> bool:
    """Return whether the key, or the end of a transaction with it, may have been written to a lost offset or later."""
    key, wrong = (symptom.partition, symptom.key or ""), symptom.wrong
    if wrong is None or wrong.transaction or wrong.due or key in truth.unknown_keys:
        return True
    return truth.reached.get(key, loss.first_offset) >= loss.first_offset


CAUSE = Cause(
    "unclean-election",
    "replicas differ after an unclean election",
    explain,
    before=ANOMALIES | {"hanging-transaction"},
    is_seen_by_both=False,
)
