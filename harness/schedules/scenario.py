"""What a test is, as data: the payload's steps, what must vanish meanwhile, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.schedules.catalog import Anomaly

ONE_COPY = "one-copy"
"""What `harness.systems.Control.coordination` calls it that brokers share one copy of each partition."""


CONSUMER_OFFSETS = "__consumer_offsets"
"""The topic in which group coordinators keep groups and their offsets; compacted on every cluster."""


class Action(StrEnum):
    """What a client does in one step."""

    PUT = "put"
    DELETE = "delete"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"


class Kind(StrEnum):
    """What a scenario's steps write: records of a topic of its own, or what a coordinator keeps of consumer groups."""

    RECORDS = "records"
    OFFSETS = "offsets"
    MEMBERS = "members"

    @property
    def is_of_groups(self) -> bool:
        """Whether it is in ``__consumer_offsets``."""
        return self is not Kind.RECORDS


class Deletion(StrEnum):
    """How the committed offsets of a group are deleted; a tombstone for each offset comes of it."""

    GROUP = "group"
    """By an administrator: DeleteGroups."""
    INPUT = "input"
    """With the topic that the group consumes, which is then created again."""
    EXPIRY = "expiry"
    """By the coordinator, once the retention of a newer commit is over."""


class Critical(StrEnum):
    """What must be removed from the replicas that stay before the absent ones return."""

    TOMBSTONE = "tombstone"
    MARKER = "marker"


class Phase(StrEnum):
    """The parts of a run, in order; every operation in the history names its phase."""

    BEFORE = "before"
    OUTAGE = "outage"
    LATE = "late"
    AFTER = "after"
    APPLICATION = "application"
    AFTERMATH = "aftermath"


@dataclass(frozen=True)
class Step:
    """One operation of one client process; ``key`` and ``value`` only where the action has them.

    In a scenario of kind `Kind.OFFSETS` a key is a partition of an input topic, and a value the offset that is
    committed for it. With `Kind.MEMBERS` a value is the protocol by which a member joins the group and leaves it, and a
    delete is a member of the consumer protocol; the key is the group, whatever its name.
    """

    process: str
    action: Action
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One payload on one topic: its own, or ``__consumer_offsets``, of which it has partitions of its own.

    ``before``: written while every replica follows. ``outage``: while some are away. ``late``: once what is
    critical is gone from the others, just before the absent ones return.
    ``critical`` names what the outage's steps write that must vanish: the tombstone written there, the
    marker of the transaction ended there. A process that begins a transaction somewhere is transactional.
    ``deletes``: what a delete of offsets is. ``group_protocols``: those that its clients join groups by.
    ``anomaly`` is None for a control, which has no replica on an absent broker and can show nothing.
    """

    name: str
    anomaly: Anomaly | None
    payload: str
    summary: str
    before: tuple[Step, ...]
    outage: tuple[Step, ...]
    late: tuple[Step, ...] = ()
    critical: tuple[Critical, ...] = (Critical.MARKER,)
    kind: Kind = Kind.RECORDS
    deletes: Deletion = Deletion.GROUP
    group_protocols: frozenset[str] = frozenset()

    @property
    def topic(self) -> str:
        """The topic that the steps write to."""
        return CONSUMER_OFFSETS if self.kind.is_of_groups else self.name

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step, in order."""
        return (*self.before, *self.outage, *self.late)

    @property
    def transactional_processes(self) -> frozenset[str]:
        """The processes that begin a transaction in any step."""
        return frozenset(step.process for step in self.steps if step.action is Action.BEGIN)
