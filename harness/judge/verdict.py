"""Verdicts: ``anomaly``, ``unknown``, ``as-expected`` or ``clean``, with the reason.

`decide` gives the verdict on one thing that was judged as a whole: a scenario, a partition, a round. `overall` gives
the verdict over several. ``clean`` has to be earned, and means that nothing was found: a finding that a user tolerates
makes ``as-expected``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003  (the codec reads the types of fields)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.judge.consequences import ApplicationView  # noqa: TC001  (the codec)
from harness.judge.finding import Finding  # noqa: TC001  (the codec)
from harness.judge.guarantees import GuaranteeResult  # noqa: TC001  (the codec)
from harness.judge.stuck_durations import AftermathStep  # noqa: TC001  (the codec)
from harness.run_folder.store import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.judge.finding import Place

ANOMALY, UNKNOWN, AS_EXPECTED, CLEAN = "anomaly", "unknown", "as-expected", "clean"
EXIT_CODES: Final = {ANOMALY: EXIT_ANOMALY, UNKNOWN: EXIT_UNKNOWN, AS_EXPECTED: EXIT_CLEAN, CLEAN: EXIT_CLEAN}
"""By verdict, the worst first."""


@dataclass(frozen=True, kw_only=True)
class ScenarioVerdict:
    """The verdict on one scenario of a run, or on one partition of an audit.

    ``partitions``: those of a run's scenario. ``partition``: that of an audit. ``exposure``: the facts of replicas.
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

    def has(self, place: Place) -> bool:
        """Whether this is the verdict on a partition; in verdicts of version 0.1, on every partition of its topic."""
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

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition


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
    aftermath: tuple[AftermathStep, ...] | None = None
    doubts: tuple[Doubt, ...] = ()
    checker_errors: Mapping[str, str]
    partial: tuple[PartialEvidence, ...] | None = None
    notes: tuple[str, ...] | None = None
    applications: tuple[ApplicationView, ...] | None = None
    prefilter: Mapping[str, Any] | None = None


def decide(
    findings: Sequence[str],
    unknown: Sequence[str],
    earned: str | None,
    lacking: str = "",
    *,
    tolerated: Sequence[str] = (),
) -> tuple[str, str]:
    """Return the verdict on something that is judged as a whole, and the reason.

    ``findings`` make an anomaly, whatever else is ``unknown``. ``earned``: how ``clean`` is earned, None if it is not;
    then ``lacking`` is the reason. ``tolerated``: findings that are expected.
    """
    if findings:
        return ANOMALY, findings[0]
    if unknown:
        return UNKNOWN, "; ".join(unknown)
    if not earned:
        return UNKNOWN, lacking
    return AS_EXPECTED if tolerated else CLEAN, earned


def overall(
    scenarios: Sequence[ScenarioVerdict], findings: Sequence[Finding], describe: Callable[[Finding], str]
) -> tuple[str, str]:
    """Return the verdict over scenarios, and the reason; ``describe`` returns a finding in one line."""
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return ANOMALY, f"{describe(findings[0])}{more}"
    verdict = worst(one.verdict for one in scenarios)
    reasons = [f"{one.scenario}: {one.reason}" for one in scenarios if one.verdict == verdict]
    return verdict, "; ".join(dict.fromkeys(reasons))


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst verdict: anomaly > unknown > as-expected > clean."""
    return min(verdicts, key=list(EXIT_CODES).index)
