"""Exposed topics: an assigned replica that is out of the ISR may miss a tombstone or marker.

A replica that is being added is assigned, and out of the ISR until it has copied everything. A broker's metadata may be
old: a broker that is cut off keeps its last metadata. So several brokers are asked, and a replica counts as missing if
any of them reports it: that pauses too much rather than too little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from harness.protect.guard.settings import window_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState
    from harness.protect.guard.settings import Settings

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one time. ``partitions``: each as one of the asked brokers reports it.

    ``missing``: assigned replicas that are out of the ISR. ``adding``: the missing replicas that are being added.
    ``notes``: sentences on unanswered questions.
    """

    partitions: Mapping[TopicPartition, PartitionState]
    missing: frozenset[Replica]
    adding: frozenset[Replica] = frozenset()
    notes: tuple[str, ...] = ()
    topics: frozenset[str] = field(init=False)
    exposed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Sum up by topic."""
        object.__setattr__(self, "topics", frozenset(topic for topic, _ in self.partitions))
        object.__setattr__(self, "exposed", frozenset(topic for (topic, _), _ in self.missing))


def missing_replicas(states: Mapping[TopicPartition, PartitionState]) -> set[Replica]:
    """Return the assigned replicas that are out of the ISR."""
    return {(tp, broker) for tp, state in states.items() for broker in state.replicas if broker not in state.isr}


def united(answers: Iterable[Mapping[TopicPartition, PartitionState]]) -> ClusterView:
    """Return the reports of several brokers together; of each partition, the last report."""
    partitions: dict[TopicPartition, PartitionState] = {}
    missing: set[Replica] = set()
    for answer in answers:
        partitions |= answer
        missing |= missing_replicas(answer)
    return ClusterView(partitions, frozenset(missing))


@dataclass
class RetentionWindows:
    """The missing replicas, and the time when this guard first saw each of them missing."""

    _since_ms: dict[Replica, int] = field(default_factory=dict)

    def update(self, missing: Collection[Replica], now_ms: int) -> None:
        """Store the replicas that are missing now."""
        self._since_ms = {replica: self._since_ms.get(replica, now_ms) for replica in missing}

    def left_s(self, settings: Mapping[str, Settings], now_ms: int) -> dict[str, float]:
        """Return the seconds left by exposed topic; negative once the retention is over."""
        since_ms = [(ms, topic) for ((topic, _), _), ms in self._since_ms.items() if topic in settings]
        oldest_ms = {topic: ms for ms, topic in sorted(since_ms, reverse=True)}
        return {topic: (ms + window_ms(settings[topic]) - now_ms) / 1000 for topic, ms in oldest_ms.items()}
