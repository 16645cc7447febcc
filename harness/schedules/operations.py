"""Everything that can happen to a cluster, as data: operations of clients, administrators, faults and the environment.

An operation is a frozen dataclass with a one-line description. Players perform operations (`harness.play`,
`harness.soak.play`, `harness.models.world.world`), and each player declares which it supports. An operation without a
topic concerns every partition of its schedule.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Protocol, TypeVar, dataclass_transform

T = TypeVar("T")
ADMIN, NEMESIS, ENVIRONMENT, PLAYER = "admin", "nemesis", "environment", "player"
"""The processes of administrators, of faults, of all that happens by itself, and of the player of a schedule."""
CLASSES: Final[dict[str, type]] = {}
"""Every class of operations, by its name in files."""


class Operation(Protocol):
    """Anything that happens to a cluster. ``process``: whose operation it is."""

    @property
    def process(self) -> str:
        """The name of a client, of administrators, of faults, of the environment or of the player."""


@dataclass_transform(frozen_default=True)
def operation(description: str | Callable[[Any], str]) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class an operation. ``description``: a template of its fields, or a function."""

    def make(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True)(cls)
        made.__str__ = description if callable(description) else lambda self: description.format_map(vars(self))
        CLASSES[name_of(cls)] = made
        return made  # type: ignore[no-any-return]

    return make


def of_process(operation: Operation, process: str) -> Operation:
    """Return the same operation of another process."""
    return replace(operation, process=process)  # type: ignore[type-var]


@cache
def interned(cls: type[T], *arguments: Hashable) -> T:
    """Return an operation that is made only once: walks of models yield the same ones millions of times."""
    return cls(*arguments)


def name_of(cls: type) -> str:
    """Return the name of a class of operations in files."""
    return re.sub(r"\B([A-Z])", r"-\1", cls.__name__).lower()


OUTCOMES = COMMIT, ABORT = "commit", "abort"
"""Outcomes of a transaction."""


@operation(
    lambda write: (
        f"{write.process} {'deletes' if write.deletes else 'puts'} {write.key}"
        f"{f' in {write.topic}-{write.partition}' * bool(write.topic)}"
    )
)
class Write:
    """A record or tombstone. It begins a client's transaction if need be; the player chooses a missing ``value``."""

    process: str
    key: str
    deletes: bool = False
    topic: str = ""
    partition: int = 0
    value: str = ""


@operation(
    lambda batch: (
        f"{batch.process} writes "
        + " ".join(f"{'-' * (at in batch.tombstones)}{key}" for at, key in enumerate(batch.keys))
    )
)
class WriteBatch:
    """Several records in one batch. ``tombstones``: the positions of keys that are deleted, from 0."""

    process: str
    keys: tuple[str, ...]
    tombstones: tuple[int, ...] = ()


@operation("{process} begins")
class Begin:
    """The beginning of a transaction."""

    process: str


@operation("{process} {outcome}s")
class End:
    """The end of the client's open transaction: commit or abort."""

    process: str
    outcome: str


@operation("{process} {outcome}s, having written nothing here")
class EndElsewhere:
    """The end of a transaction that had registered the partition, and wrote nothing to it: a lone marker."""

    process: str
    outcome: str


@operation("{process} begins again, which aborts its transaction")
class Restart:
    """A new producer of the same transactional id: the coordinator aborts the open transaction with a higher epoch."""

    process: str


@operation("{process} dies")
class Die:
    """The client is gone, and its transaction stays open. Its next operation is of a new client of the same id."""

    process: str


@operation("{process} sends offset {offset} of {topic}-{partition} for {group}")
class SendOffset:
    """A group's offset, committed as part of the client's transaction (KIP-447)."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int


@operation("{process} commits offset {offset} of {topic}-{partition} for {group}")
class CommitOffset:
    """A group's offset, committed by a consumer that manages its partitions itself."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int


@operation("{process} joins {group} ({protocol})")
class JoinGroup:
    """A member joins a group by a protocol."""

    process: str
    group: str
    protocol: str


@operation("{process} leaves {group}")
class LeaveGroup:
    """A member leaves its group."""

    process: str
    group: str


@operation("{process} visits {group} of {topic} ({protocol})")
class VisitGroup:
    """A member joins a group of a topic by a protocol, reads its records, and leaves."""

    process: str
    group: str
    topic: str
    protocol: str


@operation("{process} deletes group {group}")
class DeleteGroup:
    """A group without members is deleted."""

    process: str
    group: str


@operation(
    lambda deletion: (
        f"records{f' in {deletion.topic}-{deletion.partition}' * bool(deletion.topic)} are deleted but the last"
        f" {deletion.keeps}"
    )
)
class DeleteRecords:
    """DeleteRecords: all records of a partition but the last ``keeps`` offsets below the high watermark."""

    keeps: int
    topic: str = ""
    partition: int = 0
    process: str = ADMIN


@operation("{topic} is deleted and created again")
class RecreateTopic:
    """A topic is deleted, and created again with the same name, replicas and settings."""

    topic: str
    process: str = ADMIN


@operation("{topic} gets {setting}={value}")
class AlterTopic:
    """A setting of a topic is changed."""

    topic: str
    setting: str
    value: str
    process: str = ADMIN


@operation("{broker} leads")
class ElectLeader:
    """Another replica in sync becomes the leader."""

    broker: int
    process: str = ADMIN


@operation("{broker} is added")
class AddReplica:
    """A broker without a log of the partition gets a replica."""

    broker: int
    process: str = ADMIN


@operation("{broker} is unassigned")
class Unassign:
    """A broker's replica is removed; a broker that is down still has its log."""

    broker: int
    process: str = ADMIN


@operation("{broker} is assigned again")
class AssignAgain:
    """A broker whose replica was removed gets it back."""

    broker: int
    process: str = ADMIN


OUTAGE, LAG, LOST_DISK, RESTARTED = "outage", "lag", "lost-disk", "restart"
UNCLEAN_ELECTION, LATE_METADATA, ISOLATED = "unclean-election", "late-metadata", "isolated"
"""Faults of models. An outage is any in which a broker is down and comes back with its log: kill, pause, partition …"""
OUTAGES: Final = frozenset({OUTAGE, "kill", "stop", "pause", "partition", "power-failure", "crash-in-cleaning"})
"""Faults by which a broker leaves the ISR; it comes back with its log."""
BEGINNINGS: Final[Mapping[str, str]] = {
    OUTAGE: "{broker} leaves",
    LAG: "{broker} lags",
    LOST_DISK: "{broker} loses its disk",
    RESTARTED: "{broker} restarts",
    UNCLEAN_ELECTION: "{broker} leads uncleanly",
    LATE_METADATA: "{broker}'s image is late",
    ISOLATED: "{broker} is cut off from the controller",
}
ENDINGS: Final[Mapping[str, str]] = {
    OUTAGE: "{broker} returns",
    LAG: "{broker} catches up",
    LATE_METADATA: "{broker}'s image arrives",
    ISOLATED: "{broker} is reconnected",
}
"""Templates for faults by name, where their names alone would not say enough."""


@operation(lambda it: BEGINNINGS.get(it.fault, "{fault} begins on broker {broker}").format_map(vars(it)))
class Inject:
    """A fault begins on a broker."""

    fault: str
    broker: int
    process: str = NEMESIS


@operation(lambda it: ENDINGS.get(it.fault, "{fault} ends on broker {broker}").format_map(vars(it)))
class Heal:
    """A fault ends on a broker."""

    fault: str
    broker: int
    process: str = NEMESIS


@operation("{broker} loses power, and its log from {offset} on")
class LosePower:
    """A broker loses power, and the end of its log that is not on disk yet."""

    broker: int
    offset: int
    process: str = NEMESIS


@operation("{script}: broker {broker} is exposed to the removal")
class Expose:
    """The second act of a script, once records were removed: a broker copies them, or rejoins."""

    script: str
    broker: int
    process: str = NEMESIS


def _cleaner_pass(cleaning: Any) -> str:
    s = "s" * (len(cleaning.brokers) == 1)
    return f"{', '.join(map(str, cleaning.brokers))} clean{s}{f' and keep{s}' * cleaning.keeps}"


@operation(_cleaner_pass)
class CleanerPass:
    """A pass of each broker's cleaner. ``keeps``: batches that get their delete horizon are kept until time passes."""

    brokers: tuple[int, ...]
    keeps: bool = False
    process: str = ENVIRONMENT


@operation("time passes")
class TimePasses:
    """Time passes, longer than every retention."""

    process: str = ENVIRONMENT


@operation("rest")
class Rest:
    """Nothing happens."""

    process: str = ENVIRONMENT


@operation("producers expire")
class ProducersExpire:
    """Brokers forget all producers without an open transaction."""

    process: str = ENVIRONMENT


@operation("{broker} copies a batch")
class CopyBatch:
    """A replica that is behind copies one batch."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} joins")
class JoinIsr:
    """A replica that was added has caught up."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} falls out of the ISR")
class LeaveIsr:
    """A replica that lags leaves the ISR, and continues to copy."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} reports")
class SendReport:
    """A replica reports its offsets to the leader."""

    broker: int
    process: str = ENVIRONMENT


@operation("message {number} arrives")
class MessageArrives:
    """One of the messages in flight arrives, by its number from 1 (`harness.models.world.coordination`)."""

    number: int
    process: str = ENVIRONMENT


@operation("bounds {tombstones}/{markers} arrive")
class BoundsArrive:
    """All replicas report, and receive the bounds of removal."""

    tombstones: int
    markers: int
    process: str = ENVIRONMENT


@operation("wait until missed records are removed on every replica that stays up")
class UntilRemoved:
    """Tombstones and markers that a broker missed are removed on every replica that stays up."""

    process: str = PLAYER


@operation("wait until every replica is in sync")
class UntilInSync:
    """Every replica is in the ISR."""

    process: str = PLAYER


@operation("snapshot {name}")
class TakeSnapshot:
    """Copies of all replicas."""

    name: str
    process: str = PLAYER
