"""The state of one partition: the durable progress of its repair, and one observation of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kafka_api.messages import TopicPartition

LEAST_IN_SYNC = 2
"""Replicas in sync while a replica is rebuilt: a single replica has the only copy of an acknowledged record."""


@dataclass(frozen=True)
class ReplicaCopying:
    """A copy that was begun: the broker that copies, and the leader and its epoch just before the replica was added."""

    broker: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class PartitionRepair:
    """The durable progress of one partition.

    ``replicas``: their order before the repair, which is restored. ``leader``: the leader before the repair, or -1.
    ``right``: replicas that may lead. ``wrong``: replicas to rebuild, in this order. ``spare``: a broker that has a
    replica during the repair. ``rebuilt``: brokers whose copy is complete. ``copy``: the copy under way. ``copies``:
    the number of copies that were begun. ``audit``: the run id of the audit. ``is_done``: the repair has ended; its
    progress stays stored, so that no partition is repaired twice by one audit.
    """

    partition: TopicPartition
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
    def copying(self) -> tuple[int, ...]:
        """The brokers that copy the partition, in this order."""
        return self.wrong if self.spare is None else (self.spare, *self.wrong)

    @property
    def current(self) -> int | None:
        """The broker that copies next; None where every copy is complete."""
        return next((broker for broker in self.copying if broker not in self.rebuilt), None)

    @property
    def trusted(self) -> frozenset[int]:
        """The brokers that may lead: right replicas, and complete copies of them."""
        return frozenset(self.right) | frozenset(self.rebuilt)

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers that may have a replica during the repair."""
        return frozenset(self.replicas) | ({self.spare} if self.spare is not None else frozenset())

    @property
    def name(self) -> str:
        """The name of the partition's folders."""
        return f"{self.partition[0]}-{self.partition[1]}"


@dataclass(frozen=True)
class ObservedPartition:
    """One partition as every broker reports it.

    ``leader``: -1 without a leader. ``replicas``: the assigned replicas, also those that are being added or removed.
    ``adding`` and ``removing``: the reassignment under way. ``min_insync``: ``min.insync.replicas``. ``online``: the
    brokers that are registered and not fenced. ``folders_bytes``: the size of the partition's folder on each broker
    that has a folder. ``answered``: the brokers that reported their folders. ``is_held``: whether compaction of the
    topic is paused on every broker.
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
        """Return whether a broker reported its folders, and none of this partition."""
        return broker in self.answered and broker not in self.folders_bytes


def least_in_sync(min_insync: int) -> int:
    """Return the number of replicas that have to be in sync while a replica is rebuilt."""
    return max(min_insync, LEAST_IN_SYNC)


def needs_spare(replicas: tuple[int, ...], min_insync: int) -> bool:
    """Return whether too few replicas would remain without a spare broker, even if all are in sync."""
    return len(replicas) - 1 < least_in_sync(min_insync)
