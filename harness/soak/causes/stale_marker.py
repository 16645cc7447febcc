"""A late marker of a former coordinator: it ends a later transaction of the same producer.

A coordinator sends the markers of a transaction until they are acknowledged, and so does the next leader of its
partition of ``__transaction_state``, with a higher epoch. A marker of the former coordinator may come late, through a
slow link or from a queue. A broker rejects a marker with a lower coordinator epoch than the last marker
(``ProducerAppendInfo.checkCoordinatorEpoch``); but it forgets that epoch with its producer, after
``producer.id.expiration.ms``. A marker that comes then ends the producer's next transaction, on every replica: an
aborted transaction is served as committed. Transactions of version 2 (KIP-890) have an epoch each, and are not hit.
"""

from collections import defaultdict

from harness.soak.causes.cause import Cause, Explained, RoundEvidence, Symptoms, with_key


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys of transactions that a stale marker has ended."""
    truth, keys = evidence.truth, defaultdict[tuple[str, int], dict[str, str]](dict)
    for (tp, _), write in truth.at.items():
        if write.transaction is not None:
            markers = truth.markers.get((tp, write.transaction), ())
            if stale := truth.stale_markers.get(tp, frozenset()) & set(markers):
                keys[tp][write.key] = (
                    f"the marker at offset {min(stale)} of {tp[0]}-{tp[1]} is of a coordinator that another had taken"
                    " over from, and ends a transaction that is not its own"
                )
    return with_key(symptoms, keys)


CAUSE = Cause(
    "stale-marker",
    "a late marker of a former coordinator ended a transaction",
    explain,
    before=frozenset({"skipped-marker"}),
)
