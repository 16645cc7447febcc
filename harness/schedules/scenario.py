"""A scenario as data: the operations of its clients, the records that must be removed, and a description."""

import struct
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

from harness.schedules.operations import Begin, End, Operation, Write

CONSUMER_OFFSETS = "__consumer_offsets"
"""The topic in which group coordinators keep groups and their offsets; compacted on every cluster."""


class Kind(StrEnum):
    """Records that a scenario is about: of its topic, or a coordinator's. SERVED: as clients get them."""

    RECORDS = "records"
    SERVED = "served"
    OFFSETS = "offsets"
    MEMBERS = "members"

    @property
    def is_of_groups(self) -> bool:
        """Whether it is in ``__consumer_offsets``."""
        return self in {Kind.OFFSETS, Kind.MEMBERS}


class Deletion(StrEnum):
    """How the committed offsets of a group are deleted: each offset gets a tombstone."""

    GROUP = "group"
    """By an administrator: DeleteGroups."""
    INPUT = "input"
    """With the topic that the group consumes, which is then created again."""
    EXPIRY = "expiry"
    """By the coordinator, once the retention of a newer commit is over."""


class Critical(StrEnum):
    """Records that must be removed from the replicas that stay, before the absent brokers return."""

    TOMBSTONE = "tombstone"
    MARKER = "marker"
    SUPERSEDED = "superseded record"
    """Of a run that is judged by what clients are served."""


class Phase(StrEnum):
    """The parts of a run, in order; every operation in the history names its phase."""

    BEFORE = "before"
    OUTAGE = "outage"
    LATE = "late"
    AFTER = "after"
    APPLICATION = "application"


def client_name(scenario: str, process: str) -> str:
    """Return the name of a scenario's client: unique in a run, and so also its transactional id."""
    return f"{scenario}.{process}"


def scenario_and_process(client: str) -> tuple[str, str]:
    """Return the scenario and the process of a client's name; the scenario is "" for a client of no run."""
    scenario, _, process = client.rpartition(".")
    return scenario, process


@dataclass(frozen=True)
class Scenario:
    """The operations of clients on one topic: its own, or partitions of ``__consumer_offsets`` that no other has.

    ``before``: while every replica follows. ``outage``: while brokers are down. ``late``: just before these return,
    once the critical records are removed from the other replicas. A process that ends a transaction is transactional:
    its first write begins the transaction.

    With `Kind.OFFSETS`, the key of a write is a partition of an input topic, its value is the offset that is
    committed, and ``deletes`` is how offsets are deleted. With `Kind.MEMBERS`, the value is the protocol by which a
    member joins the group and leaves it, and a delete is a member of the consumer protocol. ``group_protocols``: the
    protocols by which clients join. ``anomaly`` is None for a control, which has no replica on an absent broker.
    """

    name: str
    anomaly: str | None
    payload: str
    summary: str
    before: tuple[Operation, ...]
    outage: tuple[Operation, ...]
    late: tuple[Operation, ...] = ()
    kind: Kind = Kind.RECORDS
    deletes: Deletion = Deletion.GROUP
    group_protocols: frozenset[str] = frozenset()

    @property
    def topic(self) -> str:
        """The topic that the steps write to."""
        return CONSUMER_OFFSETS if self.kind.is_of_groups else self.name

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, in order."""
        return (*self.before, *self.outage, *self.late)

    @property
    def transactional_processes(self) -> frozenset[str]:
        """The processes that begin or end a transaction."""
        return frozenset(operation.process for operation in self.operations if isinstance(operation, Begin | End))

    @property
    def critical(self) -> tuple[Critical, ...]:
        """The records of the outage that have to be removed: a tombstone, the marker of a transaction open before."""
        if self.kind is Kind.SERVED:
            return (Critical.SUPERSEDED,)
        is_open = {operation.process: not isinstance(operation, End) for operation in self.before}
        deletes = any(isinstance(operation, Write) and operation.deletes for operation in self.outage)
        ends = any(isinstance(operation, End) and is_open.get(operation.process) for operation in self.outage)
        return (*[Critical.TOMBSTONE] * deletes, *[Critical.MARKER] * ends)


CLASSIC, CONSUMER, STREAMS = "classic", "consumer", "streams"
"""Values of ``group.protocol``: the second is KIP-848's, with brokers of 4.0 or later."""
INPUT_PARTITIONS: Final = 2
INPUT_RECORDS: Final = 100
"""Of each partition of an input topic, before any group commits an offset."""


def input_topic(scenario: str) -> str:
    """Return the name of the topic that a scenario's groups consume."""
    return f"{scenario}-input"


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that keeps a group, so its leader coordinates the group.

    Source: `GroupMetadataManager.partitionFor`, `GroupCoordinatorService.partitionFor`: Java's ``String.hashCode``, of
    which `Utils.abs` drops the sign bit's meaning (0 for the smallest integer).
    """
    code = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def group_in(prefix: str, partition: int, partitions: int) -> str:
    """Return the first group id ``<prefix>-<n>`` that this partition keeps."""
    names = (f"{prefix}-{n}" for n in count(1))
    return next(name for name in names if offsets_partition(name, partitions) == partition)
