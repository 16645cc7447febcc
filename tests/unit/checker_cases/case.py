"""A literal history with all that the checkers must say of it, and the names that the cases share."""

from dataclasses import dataclass, field
from typing import Any

from literal import History, Txn, put

T1, T2, T3 = Txn(5, "t/1"), Txn(5, "t/2"), Txn(5, "t/3")
"""Transactions of one producer, as librdkafka writes them: its epoch stays (transactions v1)."""
V1, V2 = Txn(6, "v/1", epoch=0), Txn(6, "v/2", epoch=1)
"""Transactions of one producer whose epoch rises with each (v2, KIP-890)."""
U1 = Txn(7, "u/1")
"""A transaction of another producer."""

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"
VISIBLE, LATENT = "visible", "latent"
CONTRADICTION, UNEXPLAINED = "contradiction", "unexplained"


@dataclass(frozen=True)
class Finding:
    """The expected content of a finding; ``says`` is in the explanation, ``witness`` among the witness's fields.

    ``producer_id`` is None where the record is known from the client alone, and -1 for plain producers.
    """

    anomaly: str
    broker: int
    offset: int
    key: str
    producer_id: int | None
    effect: str
    candidates: tuple[str, ...] = ()
    says: str = ""
    witness: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Doubt:
    """The expected content of a doubt; ``says`` is in its reason."""

    kind: str
    broker: int
    says: str


@dataclass(frozen=True)
class Case:
    """A history, and all that the checkers must say of it."""

    history: History
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Doubt, ...] = ()


def case(name: str, *expected: Finding | Doubt, **history: Any) -> Case:
    """Return a case of a `History` with these fields, and all findings and doubts about it."""
    findings = tuple(result for result in expected if isinstance(result, Finding))
    return Case(History(name, **history), findings, tuple(result for result in expected if isinstance(result, Doubt)))


END = put(9, "end")
"""Logs end with a record: the cleaner leaves the last segment alone."""
