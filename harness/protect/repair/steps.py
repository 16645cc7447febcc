"""The state of one partition, and the next step that follows from it. Pure; every step is idempotent.

The state is the durable progress of the repair, and one observation of the cluster: a repair that was killed continues
with an observation. The steps for each wrong replica:

1. pause compaction of the topic: records that a cleaner removes during a slow copy are missing on the copy;
2. have a right replica lead: a copy is only as right as its leader;
3. remove the replica from the assignment, if enough others are in sync;
4. wait until its broker is online and has deleted the partition's folder: a replica that was unassigned while its
   broker was down, and assigned again before it started, keeps its old log (``LogManager.isStrayReplica``);
5. record leader and leader epoch, then add the replica;
6. when it is in the ISR, it counts only if the leader has stayed the same. A copy from two leaders, whose cleaners have
   come to different offsets, may have a value from one and miss its tombstone from the other. Otherwise begin at 3.

At the end the order of the replicas is restored, a spare replica is removed, and the former leader leads again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from harness.kafka_api import TopicPartition
from harness.run_folder.store import begin_of
from harness.schedules.placement import led_by

LEAST_IN_SYNC: Final = 2
"""Replicas in sync while a replica is rebuilt: a single replica has the only copy of an acknowledged record."""
MOST_COPIES: Final = 12
"""Of one partition: a cluster whose leaders change this often is not fit for a repair."""
RECREATED: Final = "the topic was deleted, or deleted and created again: the audit did not read the new topic"


@dataclass(frozen=True)
class ReplicaCopying:
    """A copy that was begun: the broker that copies, and the leader and its epoch just before the replica was added."""

    broker: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class PartitionRepair:
    """The durable progress of one partition.

    ``replicas``, ``leader`` (or -1): before the repair; both are restored. ``right``: replicas that may lead.
    ``wrong``: replicas to rebuild, in this order. ``spare``: a broker that has a replica during the repair.
    ``rebuilt``: brokers whose copy is complete. ``copies``: the number of copies that were begun. ``audit``: the run id
    of the audit. ``is_done``: the progress stays stored, so that no partition is repaired twice by one audit.
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

    def contradicts(self, wrong: Collection[int]) -> bool:
        """Return whether these replicas, which are wrong, may lead in this repair."""
        return not frozenset(self.right).isdisjoint(wrong)

    def is_newer_than(self, audit: str) -> bool:
        """Return whether the audit of this repair began after that audit, as far as their run ids have times."""
        begin, other = begin_of(self.audit), begin_of(audit)
        return begin is not None and other is not None and begin > other

    @property
    def trusted(self) -> frozenset[int]:
        """The brokers that may lead: right replicas, and complete copies of them."""
        return frozenset(self.right) | frozenset(self.rebuilt)

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers that may have a replica during the repair."""
        return frozenset((*self.replicas, *self.copying))


@dataclass(frozen=True)
class ObservedPartition:
    """One partition as every broker reports it.

    ``leader``: -1 without a leader. ``replicas``: also those that are being added or removed. ``online``: the brokers
    that are registered and not fenced. ``is_held``: whether compaction of the topic is paused on every broker.
    ``folders_bytes``: the size of the partition's folder by broker. ``answered``: the brokers that reported folders.
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

    @property
    def least_in_sync(self) -> int:
        """The number of replicas that have to be in sync while a replica is rebuilt."""
        return max(self.min_insync, LEAST_IN_SYNC)


def needs_spare(replicas: tuple[int, ...], min_insync: int) -> bool:
    """Return whether too few replicas would remain without a spare broker, even if all are in sync."""
    return len(replicas) - 1 < max(min_insync, LEAST_IN_SYNC)


class Action(Enum):
    """A step without content."""

    HOLD = "pause compaction of the topic"
    ELECT = "elect the preferred leader"
    DONE = "every wrong replica is rebuilt, and assignment and leader are as before"


@dataclass(frozen=True)
class RecordProgress:
    """Store this progress."""

    entry: PartitionRepair


@dataclass(frozen=True)
class Reassign:
    """Assign these replicas, the preferred leader first."""

    replicas: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Observe again, because of a condition."""

    condition: str


@dataclass(frozen=True)
class Stop:
    """Give the partition up. ``is_final``: no later repair continues it."""

    why: str
    is_final: bool = False


Step: TypeAlias = Action | RecordProgress | Reassign | Wait | Stop


class Rule(StrEnum):
    """A condition without which a repair may lose or revive records."""

    HELD = "compaction of the topic is paused"
    RIGHT_LEADER = "a right replica leads"
    IN_SYNC = "enough replicas stay in sync"
    ONLINE = "the broker is online"
    FOLDER_GONE = "the old folder is gone"
    ONE_LEADER = "the leader has not changed during the copy"


def _keeps_leader(entry: PartitionRepair, observed: ObservedPartition) -> bool:
    """Return whether no other replica led since the copy began.

    Each record that names a leader raises the epoch by one (``PartitionRegistration.merge``), so another leader and
    back is at least two. A difference of one is a bump without a change, as when a replica is removed or leaves the ISR
    (``PartitionChangeBuilder.triggerLeaderEpochBump…``).
    """
    copy = entry.copy
    return copy is not None and observed.leader == copy.leader and observed.leader_epoch - copy.leader_epoch <= 1


Rules: TypeAlias = Mapping[Rule, Callable[[PartitionRepair, ObservedPartition], bool]]
RULES: Final[Rules] = {
    Rule.HELD: lambda _, observed: observed.is_held,
    Rule.RIGHT_LEADER: lambda entry, observed: observed.leader in entry.trusted,
    Rule.IN_SYNC: lambda entry, observed: len(observed.isr - {entry.current}) >= observed.least_in_sync,
    Rule.ONLINE: lambda entry, observed: entry.current in observed.online,
    Rule.FOLDER_GONE: lambda entry, observed: entry.current is not None and observed.is_without_folder(entry.current),
    Rule.ONE_LEADER: _keeps_leader,
}


def next_step(entry: PartitionRepair, observed: ObservedPartition, rules: Rules = RULES) -> Step:
    """Return the next step for a partition. ``rules``: tests leave a rule out, to show that it is needed."""
    if (unfit := _unfit(entry, observed)) is not None:
        return unfit
    broker = entry.current
    if broker is None:
        return _restore(entry, observed)

    broken = {rule for rule, holds in rules.items() if not holds(entry, observed)}
    if Rule.HELD in broken:
        # A cleaner may have removed records during the copy.
        return Action.HOLD if entry.copy is None else RecordProgress(replace(entry, copy=None))
    if Rule.RIGHT_LEADER in broken:
        return _hand_over(entry, observed)
    step = _follow if entry.copy is not None else _remove
    return (step if broker in observed.replicas else _add)(entry, observed, broker, broken)


def _unfit(entry: PartitionRepair, observed: ObservedPartition) -> Wait | Stop | None:
    """Return a wait or a stop that holds for any progress; None where the repair can continue."""
    if observed.topic_id != entry.topic_id:
        return Stop(RECREATED, is_final=True)
    if observed.leader < 0:
        return Wait("a leader")
    ongoing, present = observed.adding | observed.removing, frozenset(observed.replicas)
    foreign = (ongoing | present) - entry.brokers
    if foreign and ongoing:
        return Wait(f"the end of another reassignment, which has broker {min(foreign)}")
    # The repair removes one replica at a time. A replica that somebody else removes may keep its old log.
    removed = frozenset(entry.replicas) - present - {entry.current}
    if foreign or removed:
        change = f"assigned a replica to broker {min(foreign)}" if foreign else f"removed the one of {min(removed)}"
        before = ", ".join(map(str, entry.replicas))
        why = f"somebody {change}; before the repair, {before} had the replicas"
        return Stop(f"{why}: assign brokers, and audit again", is_final=True)
    if entry.copy is not None and observed.leader_epoch < entry.copy.leader_epoch:
        return Wait("metadata that are as new as the progress of the repair")
    return None


def _follow(entry: PartitionRepair, observed: ObservedPartition, broker: int, broken: set[Rule]) -> Step:
    copy = entry.copy
    if copy is None or Rule.ONE_LEADER in broken:
        return RecordProgress(replace(entry, copy=None))
    if broker in observed.isr:
        return RecordProgress(replace(entry, copy=None, rebuilt=(*entry.rebuilt, broker)))
    followed = replace(copy, leader_epoch=observed.leader_epoch)
    return Wait(f"the copy on broker {broker}") if followed == copy else RecordProgress(replace(entry, copy=followed))


def _hand_over(entry: PartitionRepair, observed: ObservedPartition) -> Step:
    """Have a right replica lead: first in the order of replicas, then elected."""
    able = entry.trusted & observed.isr & observed.online
    leader = next((broker for broker in observed.replicas if broker in able), None)
    if leader is None:
        return Wait("a right replica that is in the ISR, to lead")
    if observed.replicas[0] != leader:
        return Reassign(led_by(leader, observed.replicas))
    return Action.ELECT


def _remove(entry: PartitionRepair, observed: ObservedPartition, broker: int, broken: set[Rule]) -> Step:
    others = tuple(replica for replica in observed.replicas if replica != broker)
    if Rule.IN_SYNC in broken:
        least = observed.least_in_sync
        if len(others) < least:
            return Stop(f"only {len(others)} of at least {least} replicas would remain: it takes a spare broker")
        return Wait(f"{least} replicas besides broker {broker} to be in sync")
    if entry.copies >= MOST_COPIES:
        return Stop(f"{entry.copies} copies were begun: leaders change too often")
    return Reassign(others)


def _add(entry: PartitionRepair, observed: ObservedPartition, broker: int, broken: set[Rule]) -> Step:
    if Rule.ONLINE in broken:
        return Wait(f"broker {broker} to be online")
    if Rule.FOLDER_GONE in broken:
        return Wait(f"broker {broker} to delete its folder")
    copy = ReplicaCopying(broker, observed.leader, observed.leader_epoch)
    if entry.copy != copy:
        return RecordProgress(replace(entry, copy=copy, copies=entry.copies + 1))
    return Reassign((*observed.replicas, broker))


def _restore(entry: PartitionRepair, observed: ObservedPartition) -> Step:
    if observed.adding or observed.removing:
        return Wait("the end of the reassignment")
    if observed.replicas != entry.replicas:
        if len(observed.isr & frozenset(entry.replicas)) < min(observed.least_in_sync, len(entry.replicas)):
            return Wait("the replicas to be in sync")
        return Reassign(entry.replicas)
    if not frozenset(entry.replicas) <= observed.isr:
        return Wait("every replica to be in sync")
    if entry.leader == entry.replicas[0] != observed.leader:
        return Action.ELECT
    return Action.DONE
