"""A literal history with all that the checkers must say of it, and the names that the cases share."""

from dataclasses import dataclass, field
from typing import Any

from literal import Entry, History, Replica, replica

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"
VISIBLE, LATENT = "visible", "latent"
CONTRADICTION, UNEXPLAINED = "contradiction", "unexplained"


@dataclass(frozen=True)
class Finding:
    """The expected content of a finding; ``says`` is in the explanation, ``witness`` among the witness's fields.

    ``producer_id`` is None where the record is known from the client alone, and -1 for plain producers. ``decided``
    is of audits only.
    """

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


def both(*log: Entry, **fields: Any) -> tuple[Replica, Replica]:
    """Return two replicas with the same log."""
    return replica(1, *log, **fields), replica(2, *log, **fields)
