"""Verdicts: ``anomaly``, ``unknown``, ``as-expected`` or ``clean``, with the reason.

`decide` gives the verdict on one thing that was judged as a whole, and `overall` over several. ``clean`` has to be
earned, and means that nothing was found: a finding that a user tolerates makes ``as-expected``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.judge.consequences import ApplicationView
from harness.judge.finding import Finding, Place, PlaceOf
from harness.judge.guarantees import GuaranteeResult
from harness.run_folder.store import SCHEMA, RunFolder

ANOMALY, UNKNOWN, AS_EXPECTED, CLEAN = "anomaly", "unknown", "as-expected", "clean"
EXIT_CODES: Final = {ANOMALY: EXIT_ANOMALY, UNKNOWN: EXIT_UNKNOWN, AS_EXPECTED: EXIT_CLEAN, CLEAN: EXIT_CLEAN}
"""By verdict, the worst first."""
CLIENTS, CHECKERS, AUDIT, BROKER = "clients", "checkers", "audit", "broker"
"""The judges that a finding names; the broker itself if its answers contradict its log."""


class UnknownReason(NamedTuple):
    """Why a partition cannot be called clean: the cause in one word, and a sentence."""

    cause: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ScenarioVerdict:
    """The verdict on one scenario of a run (``partitions``), or on one partition of an audit (``partition``).

    ``exposure``: the facts about replicas. ``causes``: why a partition of an audit is unknown, in one word each.
    """

    scenario: str
    anomaly: str | None
    payload: str | None
    topic: str
    partitions: tuple[int, ...] | None = None
    partition: int | None = None
    verdict: str
    reason: str
    exposure: Mapping[str, Any]
    causes: tuple[str, ...] | None = None

    def has(self, place: Place) -> bool:
        """Return whether the verdict is about a partition; in version 0.1 it is about every partition of the topic."""
        mine = (self.partition,) if self.partitions is None else self.partitions
        return self.topic == place[0] and (mine == (None,) or place[1] in mine)


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Evidence of a replica that contradicts itself, or that no finder explains."""

    broker: int
    topic: str
    partition: int
    kind: str
    reason: str

    place = PlaceOf()


@dataclass(frozen=True, kw_only=True)
class PartialEvidence:
    """A file or folder of the evidence that was not judged."""

    path: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The content of ``verdict.json``, whose fields the schema describes: of a run, an audit or a soak's round."""

    schema: int = SCHEMA
    verdict: str
    reason: str
    run_id: str
    command: str | None = None
    target: Mapping[str, Any]
    nemesis: str | None = None
    timings_s: Mapping[str, float]
    scenarios: tuple[ScenarioVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    guarantees: tuple[GuaranteeResult, ...] | None = None
    aftermath: tuple[Mapping[str, Any], ...] | None = None
    doubts: tuple[Doubt, ...] = ()
    checker_errors: Mapping[str, str]
    partial: tuple[PartialEvidence, ...] | None = None
    notes: tuple[str, ...] | None = None
    applications: tuple[ApplicationView, ...] | None = None
    prefilter: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class RoundFinding:
    """All wrong records or keys of one replica under one name, ``count`` in number.

    ``found_by``: the judges. ``explanation`` and ``witness``: of the first record or key.
    """

    anomaly: str
    broker: int
    topic: str
    partition: int
    count: int
    found_by: tuple[str, ...]
    explanation: str
    witness: Any

    place = PlaceOf()

    def __str__(self) -> str:
        return f"{self.anomaly} on broker {self.broker}, {self.topic}-{self.partition}: {self.explanation}"


@dataclass(frozen=True, kw_only=True)
class UnexplainedDifference:
    """A difference without a name, or a contradiction between judges. ``broker``: None if it concerns no replica."""

    found_by: str
    broker: int | None
    topic: str
    partition: int
    explanation: str


@dataclass(frozen=True, kw_only=True)
class RoundVerdict:
    """The content of a round's ``verdict.json``.

    ``audit``: the audit compared with the knowledge of clients (`harness.soak.judge.audit_tally`). ``groups``,
    ``gates``: counts. Each is None if it was not judged.
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
    """The line of a round in ``soak.json``: the number of findings by name, and the counts of the judges."""

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
    """The number of rounds of a shrunk schedule, and the number in which its finding was made again."""

    finding: str
    in_: int
    of: int


@dataclass(frozen=True, kw_only=True)
class SoakVerdict:
    """The content of ``soak.json``: the options, and the rounds so far. Counts are sums over all rounds.

    ``expected``: tolerated findings, with the reason. ``drawn``: faults. ``not_drawn``: features that rounds leave out,
    with the reason. ``most_rounds``: None for any number.
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
    most_rounds: int | None = None


@dataclass(frozen=True)
class RunResult:
    """A run's folder and verdict, and with ``--keep`` the addresses of its brokers."""

    folder: RunFolder
    verdict: Verdict
    addresses: dict[int, str]


def decide(
    findings: Sequence[str],
    unknown: Sequence[str],
    earned: str | None,
    lacking: str = "",
    *,
    tolerated: Sequence[str] = (),
) -> tuple[str, str]:
    """Return the verdict on something that is judged as a whole, and the reason.

    ``findings`` make an anomaly, even if something is ``unknown``. ``earned``: the way in which ``clean`` is earned;
    None if it is not, and ``lacking`` is the reason. ``tolerated``: findings that are expected.
    """
    if findings:
        return ANOMALY, findings[0]
    if unknown or not earned:
        return UNKNOWN, "; ".join(unknown) or lacking
    return AS_EXPECTED if tolerated else CLEAN, earned


def overall(
    scenarios: Sequence[ScenarioVerdict], findings: Sequence[Finding], describe: Callable[[Finding], str]
) -> tuple[str, str]:
    """Return the verdict over scenarios, and the reason; ``describe`` returns a finding in one line."""
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return ANOMALY, f"{describe(findings[0])}{more}"
    verdict = worst(scenario.verdict for scenario in scenarios)
    reasons = [f"{scenario.scenario}: {scenario.reason}" for scenario in scenarios if scenario.verdict == verdict]
    return verdict, "; ".join(dict.fromkeys(reasons))


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst verdict: anomaly > unknown > as-expected > clean."""
    return min(verdicts, key=list(EXIT_CODES).index)
