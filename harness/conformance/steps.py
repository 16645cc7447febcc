"""What may happen in a schedule, as data.

Some steps befall one partition, some the whole cluster: when many schedules go through one cluster, steps of the
second kind are common to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

BROKERS: Final = (1, 2, 3)
LEAVES: Final = 2
"""The one broker that goes away and comes back, or joins."""
STAYING: Final = (1, 3)
PLAIN, IDEMPOTENT, TRANSACTIONAL, SECOND = "p", "i", "t", "u"
"""Producers: without an id, with one, and two with transactions."""
TRANSACTIONAL_ONES: Final = (TRANSACTIONAL, SECOND)

KILL, STOP, PAUSE = "killed", "stopped", "paused"
"""SIGKILL and a start, SIGTERM and a start, SIGSTOP and SIGCONT."""


@dataclass(frozen=True)
class Write:
    """A producer writes one batch, and begins a transaction if need be: ``K`` is a value, ``-K`` a tombstone."""

    producer: str
    records: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.producer} writes {' '.join(self.records)}"


@dataclass(frozen=True)
class End:
    """A producer's open transaction ends; ``outcome``: as `models.batch` has them."""

    producer: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.producer} {self.outcome}s"


@dataclass(frozen=True)
class EndElsewhere:
    """A transaction ends that had registered this partition and wrote nothing to it: a lone marker."""

    producer: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.producer} {self.outcome}s, having written nothing here"


@dataclass(frozen=True)
class Fence:
    """A producer begins anew while its transaction is open: the coordinator aborts that with a higher epoch."""

    producer: str

    def __str__(self) -> str:
        return f"{self.producer} begins anew, and is aborted"


@dataclass(frozen=True)
class Lead:
    """Another replica in sync becomes the leader."""

    broker: int

    def __str__(self) -> str:
        return f"{self.broker} leads"


@dataclass(frozen=True)
class DeleteRecords:
    """The log's start moves to this offset."""

    before: int

    def __str__(self) -> str:
        return f"records before {self.before} are deleted"


@dataclass(frozen=True)
class Join:
    """The broker that has no replica yet gets one, which joins the ISR."""

    def __str__(self) -> str:
        return f"{LEAVES} joins"


@dataclass(frozen=True)
class Rest:
    """Nothing happens here while something does elsewhere."""

    def __str__(self) -> str:
        return "rest"


@dataclass(frozen=True)
class Leave:
    """The broker goes away; ``how``: killed, stopped or paused."""

    how: str = KILL

    def __str__(self) -> str:
        return f"{LEAVES} is {self.how}"


@dataclass(frozen=True)
class Return:
    """It comes back, copies what it lacks, and is in sync again."""

    def __str__(self) -> str:
        return f"{LEAVES} returns"


@dataclass(frozen=True)
class Clean:
    """The cleaners of these brokers make one pass each over what they hold, where anything is dirty.

    ``kept``: what ages in it is kept until `TimePasses`; otherwise any later pass finds that its time has come.
    """

    brokers: tuple[int, ...] = BROKERS
    kept: bool = False

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.brokers))} clean{' and keep' * self.kept}"


@dataclass(frozen=True)
class TimePasses:
    """Every delete horizon comes."""

    def __str__(self) -> str:
        return "time passes"


@dataclass(frozen=True)
class Expire:
    """Brokers that are there forget every producer that has no open transaction."""

    def __str__(self) -> str:
        return "producers expire"


LocalStep: TypeAlias = Write | End | EndElsewhere | Fence | Lead | DeleteRecords | Join | Rest
CommonStep: TypeAlias = Leave | Return | Clean | TimePasses | Expire
Step: TypeAlias = LocalStep | CommonStep
COMMON: Final = (Leave, Return, Clean, TimePasses, Expire)


@dataclass(frozen=True)
class Schedule:
    """Steps for one partition. ``name`` is its topic's. ``replicas``: its brokers to begin with, the leader first.

    ``version``: of its transactions; 2 raises the epoch with every end (KIP-890).
    """

    name: str
    steps: tuple[Step, ...]
    replicas: tuple[int, ...] = (1, 3, 2)
    version: int = 1
