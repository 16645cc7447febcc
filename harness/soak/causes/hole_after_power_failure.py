"""A hole: records that a broker lost with its power, and did not copy again.

A segment had rolled, and was not synced yet (``UnifiedLog.roll`` syncs in the background), while the file of the next
segment exists. A broker that starts accepts the empty segment (``LogLoader.recoverLog``), continues at the end of the
last one, and never asks for the missing offsets. Acknowledged records are gone from a replica in the ISR.
"""

from collections import defaultdict

from harness.soak.causes.cause import Cause, Explained, RoundEvidence, Symptoms


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys that were written to the offsets of a hole, or ended by a marker there."""
    truth, keys = evidence.truth, defaultdict[object, dict[str | None, object]](dict)
    holes = [loss for loss in evidence.losses if loss.is_hole]
    for (tp, offset), write in truth.at.items() if holes else ():
        markers = () if write.transaction is None else truth.markers.get((tp, write.transaction), ())
        for hole in holes:
            if tp == hole.partition and any(hole.first_offset <= at <= hole.last_offset for at in (offset, *markers)):
                keys[hole.broker, tp][write.key] = hole
    return {symptom: loss for symptom in symptoms if (loss := keys[symptom.broker, symptom.partition].get(symptom.key))}


CAUSE = Cause(
    "hole-after-power-failure",
    "a replica lost a segment in the middle of its log with its power",
    explain,
    before=frozenset({"stale-marker"}),
    is_seen_by_both=False,
)
