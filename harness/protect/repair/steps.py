"""The next step for one partition, from its durable progress and one observation. Pure; every step is idempotent.

So a repair that was killed goes on by observing. The steps for each wrong replica:

1. pause compaction of the topic: records that a cleaner removes during a slow copy are missing on the copy;
2. have a right replica lead: a copy is only as right as its leader;
3. remove the replica from the assignment, if enough others are in sync;
4. wait until its broker is online and has no folder of the partition any more: a replica that was unassigned while its
   broker was down, and assigned again before it started, keeps its old log (``LogManager.isStrayReplica``);
5. record leader and leader epoch, then add the replica;
6. when it is in the ISR, it counts only if the leader has stayed the same. A copy from two leaders, whose cleaners have
   come to different offsets, may have a value from one and lack its tombstone from the other. Otherwise begin at 3.

At the end the order of the replicas is put back, a spare replica goes, and the former leader leads again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.protect.repair.state import ReplicaCopying, least_in_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.protect.repair.state import ObservedPartition, PartitionRepair

MOST_COPIES = 12
"""Of one partition: a cluster whose leaders change this often is not fit for a repair."""


@dataclass(frozen=True)
class Hold:
    """Pause compaction of the topic."""


@dataclass(frozen=True)
class RecordProgress:
    """Store this progress."""

    entry: PartitionRepair


@dataclass(frozen=True)
class Reassign:
    """Assign these replicas, the preferred leader first."""

    replicas: tuple[int, ...]


@dataclass(frozen=True)
class Elect:
    """Elect the preferred leader."""


@dataclass(frozen=True)
class Wait:
    """Observe again: ``what`` is waited for."""

    what: str


@dataclass(frozen=True)
class Stop:
    """The repair of this partition cannot go on, and ``why``."""

    why: str


@dataclass(frozen=True)
class Done:
    """Every wrong replica is rebuilt, and assignment and leader are as before."""


Step: TypeAlias = "Hold | RecordProgress | Reassign | Elect | Wait | Stop | Done"


class Rule(StrEnum):
    """A condition without which a repair may lose or revive records."""

    HELD = "compaction of the topic is paused"
    RIGHT_LEADER = "a right replica leads"
    IN_SYNC = "enough replicas stay in sync"
    ONLINE = "the broker is online"
    FOLDER_GONE = "the old folder is gone"
    ONE_LEADER = "the leader has not changed during the copy"


def _keeps_leader(entry: PartitionRepair, seen: ObservedPartition) -> bool:
    """Whether nobody else led since the copy began.

    Each record that names a leader raises the epoch by one (``PartitionRegistration.merge``), so another leader and
    back is at least two. One alone is a bump without a change, as when a replica is removed or leaves the ISR
    (``PartitionChangeBuilder.triggerLeaderEpochBump…``).
    """
    copy = entry.copy
    return copy is not None and seen.leader == copy.leader and seen.leader_epoch - copy.leader_epoch <= 1


RULES: Final[Mapping[Rule, Callable[[PartitionRepair, ObservedPartition], bool]]] = {
    Rule.HELD: lambda _entry, seen: seen.is_held,
    Rule.RIGHT_LEADER: lambda entry, seen: seen.leader in entry.trusted,
    Rule.IN_SYNC: lambda entry, seen: len(seen.isr - {entry.current}) >= least_in_sync(seen.min_insync),
    Rule.ONLINE: lambda entry, seen: entry.current in seen.online,
    Rule.FOLDER_GONE: lambda entry, seen: entry.current is not None and seen.is_without_folder(entry.current),
    Rule.ONE_LEADER: _keeps_leader,
}


def next_step(
    entry: PartitionRepair,
    seen: ObservedPartition,
    rules: Mapping[Rule, Callable[[PartitionRepair, ObservedPartition], bool]] = RULES,
) -> Step:
    """Return the next step for a partition. ``rules``: tests leave one out, to show that it is needed."""
    unfit = _unfit(entry, seen)
    if unfit is not None:
        return unfit
    broker = entry.current
    if broker is None:
        return _restore(entry, seen)

    def is_broken(rule: Rule) -> bool:
        return rule in rules and not rules[rule](entry, seen)

    if is_broken(Rule.HELD):
        return Hold()
    if is_broken(Rule.RIGHT_LEADER):
        return _hand_over(entry, seen)
    step = _follow if entry.copy is not None else _remove
    return (step if broker in seen.replicas else _add)(entry, seen, broker, is_broken)


def _unfit(entry: PartitionRepair, seen: ObservedPartition) -> Wait | Stop | None:
    """Return what has to be waited for whatever the progress is, or why the repair cannot go on."""
    if seen.topic_id != entry.topic_id:
        return Stop("the topic was deleted and created again: nothing of it was audited")
    if seen.leader < 0:
        return Wait("a leader")
    if foreign := (seen.adding | seen.removing | frozenset(seen.replicas)) - entry.brokers:
        return Wait(f"the end of another reassignment, which has broker {min(foreign)}")
    if entry.copy is not None and seen.leader_epoch < entry.copy.leader_epoch:
        return Wait("metadata that are as new as the progress of the repair")
    return None


def _follow(entry: PartitionRepair, seen: ObservedPartition, broker: int, is_broken: Callable[[Rule], bool]) -> Step:
    """Follow a copy until it is complete, or does not count."""
    copy = entry.copy
    if copy is None or is_broken(Rule.ONE_LEADER):
        return RecordProgress(replace(entry, copy=None))
    if broker in seen.isr:
        return RecordProgress(replace(entry, copy=None, rebuilt=(*entry.rebuilt, broker)))
    followed = replace(copy, leader_epoch=seen.leader_epoch)
    return Wait(f"the copy on broker {broker}") if followed == copy else RecordProgress(replace(entry, copy=followed))


def _hand_over(entry: PartitionRepair, seen: ObservedPartition) -> Step:
    """Have a right replica lead: first in the order of replicas, then elected."""
    leader = next((broker for broker in seen.replicas if broker in entry.trusted & seen.isr & seen.online), None)
    if leader is None:
        return Wait("a right replica that is in the ISR, to lead")
    if seen.replicas[0] != leader:
        return Reassign((leader, *(broker for broker in seen.replicas if broker != leader)))
    return Elect()


def _remove(entry: PartitionRepair, seen: ObservedPartition, broker: int, is_broken: Callable[[Rule], bool]) -> Step:
    left = tuple(one for one in seen.replicas if one != broker)
    if is_broken(Rule.IN_SYNC):
        least = least_in_sync(seen.min_insync)
        if len(left) < least:
            return Stop(f"only {len(left)} of at least {least} replicas would be left: it takes a spare broker")
        return Wait(f"{least} replicas beside broker {broker} to be in sync")
    if entry.copies >= MOST_COPIES:
        return Stop(f"{entry.copies} copies were begun: leaders change too often")
    return Reassign(left)


def _add(entry: PartitionRepair, seen: ObservedPartition, broker: int, is_broken: Callable[[Rule], bool]) -> Step:
    if is_broken(Rule.ONLINE):
        return Wait(f"broker {broker} to be online")
    if is_broken(Rule.FOLDER_GONE):
        return Wait(f"broker {broker} to delete its folder")
    copy = ReplicaCopying(broker, seen.leader, seen.leader_epoch)
    if entry.copy != copy:
        return RecordProgress(replace(entry, copy=copy, copies=entry.copies + 1))
    return Reassign((*seen.replicas, broker))


def _restore(entry: PartitionRepair, seen: ObservedPartition) -> Step:
    if seen.replicas != entry.replicas and not seen.adding and not seen.removing:
        if len(seen.isr & frozenset(entry.replicas)) < min(least_in_sync(seen.min_insync), len(entry.replicas)):
            return Wait("the replicas to be in sync")
        return Reassign(entry.replicas)
    if seen.adding or seen.removing:
        return Wait("the end of the reassignment")
    if not frozenset(entry.replicas) <= seen.isr:
        return Wait("every replica to be in sync")
    if entry.leader == entry.replicas[0] != seen.leader:
        return Elect()
    return Done()
