"""The steps of a schedule, as data.

Some steps apply to one partition, some to the whole cluster: when many schedules run on one cluster, they have
steps of the second kind in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

BROKERS: Final = (1, 2, 3)
LEAVES: Final = 2
"""The only broker that goes away and comes back, or joins."""
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
    """A producer's open transaction ends; ``outcome``: as in `models.batch`."""

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
    """A producer restarts while its transaction is open: the coordinator aborts the transaction with a higher epoch."""

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
    """The log start offset moves to this offset."""

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
    """No step for this partition, while others have one."""

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
    """The broker comes back, copies the missing records, and is in sync again."""

    def __str__(self) -> str:
        return f"{LEAVES} returns"


@dataclass(frozen=True)
class Clean:
    """The cleaners of these brokers make one pass each, if anything is dirty.

    ``kept``: batches with a delete horizon are kept until `TimePasses`; otherwise any later pass may remove them.
    """

    brokers: tuple[int, ...] = BROKERS
    kept: bool = False

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.brokers))} clean{' and keep' * self.kept}"


@dataclass(frozen=True)
class TimePasses:
    """Every delete horizon passes."""

    def __str__(self) -> str:
        return "time passes"


@dataclass(frozen=True)
class Expire:
    """Live brokers expire every producer that has no open transaction."""

    def __str__(self) -> str:
        return "producers expire"


LocalStep: TypeAlias = Write | End | EndElsewhere | Fence | Lead | DeleteRecords | Join | Rest
CommonStep: TypeAlias = Leave | Return | Clean | TimePasses | Expire
Step: TypeAlias = LocalStep | CommonStep
COMMON: Final = (Leave, Return, Clean, TimePasses, Expire)


@dataclass(frozen=True)
class Schedule:
    """Steps for one partition. ``name``: its topic. ``replicas``: its initial brokers, the leader first.

    ``version``: of its transactions; 2 raises the epoch with every end (KIP-890).
    """

    name: str
    steps: tuple[Step, ...]
    replicas: tuple[int, ...] = (1, 3, 2)
    version: int = 1
