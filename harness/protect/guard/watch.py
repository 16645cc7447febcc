"""Which topics are exposed now: an assigned replica that is out of the ISR may miss a tombstone or marker.

A replica that is being added is assigned, and out of the ISR until it has copied all. A broker's metadata may be old: a
broker that is cut off goes on with what it had. So several brokers are asked, and a replica counts as away if any of
them says so: that pauses too much rather than too little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one time. ``partitions``: as a broker has them, one of those that were asked.

    ``missing``: assigned replicas that are out of the ISR. ``adding``: those of them that are being added. ``notes``:
    what could not be read, each in a sentence.
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
    """Return what several brokers say together; a partition is as the last one has it."""
    partitions: dict[TopicPartition, PartitionState] = {}
    missing: set[Replica] = set()
    for answer in answers:
        partitions |= answer
        missing |= missing_replicas(answer)
    return ClusterView(partitions, frozenset(missing))
