"""Markers of a coordinator that another had taken over from: they end a later transaction of the same producer.

A coordinator sends the markers of a transaction until they are acknowledged, and so does the next one that leads its
partition of ``__transaction_state``, with a higher epoch. What the former one has sent may come late, through a slow
link or from a queue. A broker rejects a marker whose coordinator has a lower epoch than the last one's
(``ProducerAppendInfo.checkCoordinatorEpoch``); but it forgets that epoch with its producer, after
``producer.id.expiration.ms``. A marker that comes then ends whatever the producer has written since, on every
replica: a transaction that was aborted is served as committed. Transactions of version 2 (KIP-890) have an epoch
each, and are not hit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.judge.truth import Truth


@dataclass(frozen=True)
class StaleMarker:
    """A marker whose coordinator epoch is lower than that of an earlier marker of its producer."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        """Return it in words."""
        topic, number = self.partition
        return (
            f"the marker at offset {self.offset} of {topic}-{number} is of a coordinator that another had taken over"
            " from, and ends a transaction that is not its own"
        )


def stale_keys(truth: Truth) -> dict[TopicPartition, dict[str, StaleMarker]]:
    """Return the keys of transactions that such a marker has ended."""
    found: dict[TopicPartition, dict[str, StaleMarker]] = defaultdict(dict)
    for (tp, _), write in truth.at.items():
        if write.transaction is not None:
            stale = truth.stale_markers.get(tp, frozenset()) & set(truth.markers.get((tp, write.transaction), ()))
            if stale:
                found[tp][write.key] = StaleMarker(tp, min(stale))
    return found
