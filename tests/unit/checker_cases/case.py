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

    ``producer_id``: None where only the client knows the record, -1 for plain producers. ``decided``: by audits.
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


def case(name: str, *results_and_replicas: Finding | Doubt | Replica, **history: Any) -> Case:
    """Return a case: all findings and doubts about a `History` with these replicas at its end, and other fields.

    If clients are known, they wrote what the first replica holds, unless ``wrote`` says otherwise.
    """
    findings = tuple(finding for finding in results_and_replicas if isinstance(finding, Finding))
    doubts = tuple(doubt for doubt in results_and_replicas if isinstance(doubt, Doubt))
    after = tuple(replica for replica in results_and_replicas if isinstance(replica, Replica))
    if history.get("client", True):
        history.setdefault("wrote", after[0].log)
    return Case(History(name, after, **history), findings, doubts)


def both(*log: Entry, **fields: Any) -> tuple[Replica, Replica]:
    """Return two replicas with the same log."""
    return replica(1, *log, **fields), replica(2, *log, **fields)
