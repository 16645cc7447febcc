"""A late marker of a former coordinator: it ends a later transaction of the same producer.

A coordinator sends the markers of a transaction until they are acknowledged, and so does the next leader of its
partition of ``__transaction_state``, with a higher epoch. A marker of the former coordinator may come late, through a
slow link or from a queue. A broker rejects a marker with a lower coordinator epoch than that of the last marker
(``ProducerAppendInfo.checkCoordinatorEpoch``); but it forgets that epoch with its producer, after
``producer.id.expiration.ms``. A marker that comes then ends the producer's next transaction, on every replica: an
aborted transaction is served as committed. Transactions of version 2 (KIP-890) have an epoch each, and are not hit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.soak.causes.cause import Cause, Explained, RoundEvidence, Symptoms, with_key

if TYPE_CHECKING:
    from harness.kafka_api.messages import TopicPartition


@dataclass(frozen=True)
class StaleMarker:
    """A marker whose coordinator epoch is lower than that of an earlier marker of its producer."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        """Return the marker in a sentence."""
        topic, number = self.partition
        return (
            f"the marker at offset {self.offset} of {topic}-{number} is of a coordinator that another had taken over"
            " from, and ends a transaction that is not its own"
        )


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the symptoms about keys of transactions that a stale marker has ended."""
    truth, keys = evidence.truth, defaultdict["TopicPartition", dict[str, StaleMarker]](dict)
    for (tp, _), write in truth.at.items():
        if write.transaction is not None:
            markers = truth.markers.get((tp, write.transaction), ())
            if stale := truth.stale_markers.get(tp, frozenset()) & set(markers):
                keys[tp][write.key] = StaleMarker(tp, min(stale))
    return with_key(symptoms, keys)


CAUSE = Cause(
    "stale-marker",
    "a late marker of a former coordinator ended a transaction",
    explain,
    before=frozenset({"skipped-marker"}),
)
