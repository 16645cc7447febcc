"""Replicas that differ in a partition whose leader had lost records, and was elected uncleanly."""

from harness.soak.causes.cause import ANOMALIES, Cause, Explained, RoundEvidence, Symptoms


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys of these partitions: of plain keys, if records may be as late as the lost ones."""
    reached, unknown = evidence.truth.reached, evidence.truth.unknown_keys
    return {
        symptom: loss
        for loss in evidence.losses
        for symptom in symptoms
        if loss.led_uncleanly and symptom.partition == loss.partition and symptom.key is not None
        if (wrong := symptom.wrong) is None
        or (wrong.transaction or wrong.due or (loss.partition, symptom.key) in unknown)
        or reached.get((loss.partition, symptom.key), loss.first_offset) >= loss.first_offset
    }


CAUSE = Cause(
    "unclean-election",
    "replicas differ after an unclean election",
    explain,
    before=ANOMALIES | {"hanging-transaction"},
    is_seen_by_both=False,
)
