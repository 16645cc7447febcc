"""Replicas that differ in a partition whose leader had lost records, and was elected uncleanly."""

from harness.soak.causes.cause import ANOMALIES, Cause, Explained, RoundEvidence, Symptoms


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys of these partitions."""
    losses = {loss.partition: loss for loss in evidence.losses if loss.led_uncleanly}
    return {
        symptom: losses[symptom.partition]
        for symptom in symptoms
        if symptom.key is not None and symptom.partition in losses
    }


CAUSE = Cause(
    "unclean-election",
    "replicas differ after an unclean election",
    explain,
    before=ANOMALIES | {"hanging-transaction"},
    is_seen_by_both=False,
)
