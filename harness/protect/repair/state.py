"""What a repair knows of one partition: its durable progress, and one observation of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Partition: TypeAlias = "tuple[str, int]"
"""Topic and partition."""

LEAST_IN_SYNC = 2
"""Replicas in sync while one is rebuilt: with one alone, an acknowledged record has a single copy."""


@dataclass(frozen=True)
class ReplicaCopying:
    """A copy that was begun: the broker that copies, and the leader and its epoch just before the replica was added."""

    broker: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class PartitionRepair:
    """The durable progress of one partition.

    ``replicas``: their order before the repair, which is put back. ``leader``: the leader before the repair; -1 where
    there was none. ``right``: replicas that may lead. ``wrong``: replicas to rebuild, in this order. ``spare``: a
    broker that gets a replica for the time of the repair. ``rebuilt``: brokers whose copy is complete. ``copy``: the
    copy under way. ``copies``: how many were begun. ``audit``: the run id of the audit that gave rise to the repair.
    ``is_done``: the repair is finished; it stays known, so that no partition is repaired twice by one audit.
    """

    partition: Partition
    topic_id: str
    replicas: tuple[int, ...]
    leader: int
    right: tuple[int, ...]
    wrong: tuple[int, ...]
    spare: int | None = None
    rebuilt: tuple[int, ...] = ()
    copy: ReplicaCopying | None = None
    copies: int = 0
    audit: str = ""
    is_done: bool = False

    @property
    def current(self) -> int | None:
        """The broker whose replica is to be copied next; None where every copy is complete."""
        wanted = (*(() if self.spare is None else (self.spare,)), *self.wrong)
        return next((broker for broker in wanted if broker not in self.rebuilt), None)

    @property
    def trusted(self) -> frozenset[int]:
        """The brokers that may lead: right replicas, and complete copies of them."""
        return frozenset(self.right) | frozenset(self.rebuilt)

    @property
    def brokers(self) -> frozenset[int]:
        """Every broker that the repair may add or remove, or leaves as it is."""
        return frozenset(self.replicas) | ({self.spare} if self.spare is not None else frozenset())

    @property
    def name(self) -> str:
        """The name of the partition's folders, which Kafka prints too."""
        return f"{self.partition[0]}-{self.partition[1]}"


@dataclass(frozen=True)
class ObservedPartition:
    """One observation of a partition, on which every broker that was asked agrees.

    ``leader``: -1 where there is none. ``replicas``: the assigned ones, also those that are being added or removed.
    ``adding`` and ``removing``: those of a reassignment under way. ``min_insync``: ``min.insync.replicas``. ``online``:
    the brokers that are registered and not fenced. ``folders_bytes``: the size of the partition's folder on each broker
    that has one. ``answered``: the brokers that reported their folders. ``is_held``: whether compaction of the topic is
    paused on every broker.
    """

    topic_id: str
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_insync: int
    online: frozenset[int]
    is_held: bool
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()
    folders_bytes: Mapping[int, int] = field(default_factory=dict)
    answered: frozenset[int] = frozenset()

    def is_without_folder(self, broker: int) -> bool:
        """Whether a broker reported its folders, and has none of this partition."""
        return broker in self.answered and broker not in self.folders_bytes


def least_in_sync(min_insync: int) -> int:
    """Return how many replicas have to be in sync while one is rebuilt."""
    return max(min_insync, LEAST_IN_SYNC)


def needs_spare(replicas: tuple[int, ...], min_insync: int) -> bool:
    """Whether too few replicas would be left without a spare broker, even if all are in sync."""
    return len(replicas) - 1 < least_in_sync(min_insync)
