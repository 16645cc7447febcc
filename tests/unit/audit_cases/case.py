"""The expected result of an audit of copied log directories, and the names that the cases share."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from copied import Copy
from literal import Txn, put

from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN

T1, T2 = Txn(5, "t/1"), Txn(5, "t/2")
"""Transactions of one producer whose epoch stays (v1): a marker may be any of theirs."""
V1, V2, V3 = Txn(6, "v/1", epoch=0), Txn(6, "v/2", epoch=1), Txn(6, "v/3", epoch=2)
"""Transactions of one producer whose epoch rises with each end (v2, KIP-890): V1's own marker is in the epoch of V2."""
U1, X1 = Txn(7, "u/1"), Txn(8, "x/1")
"""Transactions of other producers."""

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"

END = put(9, "end")
"""Logs end with a record: the cleaner leaves the last segment alone."""


@dataclass(frozen=True)
class Finding:
    """The expected content of a finding; ``says`` is in the explanation, ``witness`` among the witness's fields."""

    anomaly: str
    broker: int
    offset: int
    key: str | None
    producer_id: int | None
    effect: str
    candidates: tuple[str, ...] = ()
    says: str = ""
    witness: dict[str, Any] = field(default_factory=dict)
    decided: bool = True


def undecided(*place: Any, **more: Any) -> Finding:
    """Return a finding that accuses nobody; its broker is the described broker."""
    return replace(Finding(*place, **more), decided=False)


@dataclass(frozen=True)
class Case:
    """Copies of one partition, and all that an audit must say of them; ``says`` is in the partition's reason.

    ``spoil`` does something to the files, in the folder that holds the log directories; ``{top}`` in ``says`` is that
    folder.
    """

    name: str
    copies: tuple[Copy, ...]
    verdict: str
    findings: tuple[Finding, ...] = ()
    says: str = ""
    spoil: Callable[[Path], None] = lambda _: None


def clean(name: str, *copies: Copy, **more: Any) -> Case:
    return Case(name, copies, CLEAN, **{"says": f"{len(copies)} replicas were read to offset", **more})


def unknown(name: str, *copies: Copy, says: str, **more: Any) -> Case:
    return Case(name, copies, UNKNOWN, says=says, **more)


def anomaly(name: str, copies: tuple[Copy, ...], *findings: Finding) -> Case:
    return Case(name, copies, ANOMALY, findings, findings[0].says)
