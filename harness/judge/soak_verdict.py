"""The verdicts on a soak and on its rounds, as ``soak.json`` and a round's ``verdict.json`` have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003  (the codec reads the types of fields)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.judge.guarantees import GuaranteeResult  # noqa: TC001  (the codec)
from harness.judge.verdict import Doubt  # noqa: TC001  (the codec)
from harness.run_folder.store import SCHEMA

if TYPE_CHECKING:
    from harness.judge.finding import Place

CLIENTS, CHECKERS, AUDIT, BROKER = "clients", "checkers", "audit", "broker"
"""The judges that a finding names; the broker itself, where its answers contradict its log."""


@dataclass(frozen=True, kw_only=True)
class RoundFinding:
    """What one replica is wrong about under one name.

    ``count``: how many records or keys. ``found_by``: the judges. ``explanation`` and ``witness``: of the first.
    """

    anomaly: str
    broker: int
    topic: str
    partition: int
    count: int
    found_by: tuple[str, ...]
    explanation: str
    witness: Any

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        """Return the finding in one line."""
        return f"{self.anomaly} on broker {self.broker}, {self.topic}-{self.partition}: {self.explanation}"


@dataclass(frozen=True, kw_only=True)
class UnexplainedDifference:
    """A difference without a name, or a contradiction between judges. ``broker``: None where it is of no replica."""

    found_by: str
    broker: int | None
    topic: str
    partition: int
    explanation: str


@dataclass(frozen=True, kw_only=True)
class RoundVerdict:
    """The content of a round's ``verdict.json``.

    ``audit``: the audit compared with what clients know (`harness.soak.judge.audit_tally`). ``groups``, ``gates``:
    counts. Each is None where it was not judged.
    """

    verdict: str
    reason: str
    findings: tuple[RoundFinding, ...] = ()
    unexplained: tuple[UnexplainedDifference, ...] = ()
    guarantees: tuple[GuaranteeResult, ...] = ()
    audit: Mapping[str, Any] | None
    groups: Mapping[str, int] | None
    gates: Mapping[str, int] | None
    doubts: tuple[Doubt, ...] = ()
    checker_errors: Mapping[str, str] = field(default_factory=dict)
    round: str | None = None
    seed: int | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """Findings by name."""
        return dict(sorted(Counter(finding.anomaly for finding in self.findings).items()))


@dataclass(frozen=True, kw_only=True)
class RoundLine:
    """The line of a round in ``soak.json``: the number of findings by name, and what the judges counted."""

    name: str
    seed: int
    verdict: str
    reason: str
    operations: int
    faults: tuple[str, ...]
    findings: Mapping[str, int]
    unexplained: int
    audit: Mapping[str, int] | None
    groups: Mapping[str, int] | None
    gates: Mapping[str, int] | None
    took_s: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RepeatedFinding:
    """In how many rounds of a schedule that was repeated the finding was made for which it was shrunk."""

    finding: str
    in_: int
    of: int


@dataclass(frozen=True, kw_only=True)
class SoakVerdict:
    """The content of ``soak.json``: what was asked for, and the rounds so far. Counts are sums over all rounds.

    ``expected``: why each tolerated finding is tolerated. ``drawn``: faults. ``not_drawn``: what rounds leave out, and
    why.
    """

    schema: int = SCHEMA
    verdict: str
    reason: str
    folder: str
    target: str
    seed: int
    minutes: float
    runtime: str
    gate: bool
    shape: Mapping[str, Any]
    expected: Mapping[str, str]
    drawn: tuple[str, ...]
    not_drawn: Mapping[str, str]
    took_s: float
    findings: Mapping[str, int]
    unexplained: int
    audit: Mapping[str, int]
    groups: Mapping[str, int]
    gates: Mapping[str, int]
    shown: RepeatedFinding | None
    rounds: tuple[RoundLine, ...]
