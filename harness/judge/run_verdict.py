"""The verdict of a run, from the results of its checkers.

``clean`` has to be earned (`harness.judge.earned`). Without a finding and without such a proof the verdict is
``unknown``, and so it is where evidence contradicts itself.

The documented guarantees (`checkers.guarantees`) are reported next to the findings; they neither cause an ``anomaly``
nor remove one. An anomaly breaks guarantees by itself, on the replica that was away: that adds nothing to it. Where no
anomaly was found, a violated guarantee has no name that users could look up, and its proof rests on more than that of
a finding (observations, and clocks of one host). So such a scenario is ``unknown``, and the reason names the
guarantee; as the control partition shares the cluster, a violation there forbids ``clean`` everywhere. A guarantee
without evidence forbids nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.judge import guarantees
from harness.judge.earned import earn
from harness.judge.group_consequences import group_consequences
from harness.judge.stuck_durations import stuck_durations
from harness.judge.verdict import Doubt, PartialEvidence, ScenarioVerdict, Verdict, decide, overall
from harness.schedules.scenario import ONE_COPY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.judge.finding import CheckerRow, Finding, Place
    from harness.judge.guarantees import GuaranteeResult, Violation
    from harness.judge.protected import ProtectionRecord
    from harness.run_folder.inventory import EvidenceDifference

NO_FAULT = "none"
"""The only nemesis that takes no broker away, for run folders whose manifest lacks that field."""


@dataclass(frozen=True)
class Results:
    """Results of the checkers for a run, and exceptions by checker.

    ``exposure``, ``outcomes`` and ``guarantees``: rows; ``guarantees`` is None where they were not checked.
    """

    findings: Sequence[Finding] = ()
    doubts: Sequence[Doubt] = ()
    exposure: Sequence[CheckerRow] = ()
    raised: Mapping[str, str] = field(default_factory=dict)
    outcomes: Sequence[CheckerRow] = ()
    guarantees: Sequence[CheckerRow] | None = None


def assemble(
    manifest: Mapping[str, Any],
    results: Results,
    aftermath: Sequence[Mapping[str, Any]] = (),
    *,
    missing: Sequence[EvidenceDifference] = (),
    protection: ProtectionRecord | None = None,
) -> Verdict:
    """Return the verdict of a run; ``aftermath``: the lines of that file.

    ``protection``: what the gates of the brokers, or the guard, did; None for a run without.

    ``missing``: evidence that the checkers did not read, as it differs from what the run wrote. It forbids ``clean``
    for every scenario that it concerns.
    """
    contradicted = {(*doubt.place, doubt.broker) for doubt in results.doubts if doubt.kind == "contradiction"}
    trusted = [one for one in results.findings if (*one.place, one.broker) not in contradicted]
    order = {place: index for index, scenario in enumerate(manifest["scenarios"]) for place in places_of(scenario)}
    by_topic = {scenario["topic"]: index for index, scenario in enumerate(manifest["scenarios"])}

    def position(finding: Finding) -> tuple[int, int, int, int]:
        index = order.get(finding.place, by_topic.get(finding.topic, 0))
        return index, finding.partition, finding.broker, finding.offset

    findings = tuple(sorted(trusted, key=position))
    failure = manifest.get("failure")
    why_unchecked = (
        "" if results.guarantees is not None
        else results.raised.get(guarantees.CHECKER) or failure or "it was not checked: the run did not go to its end"
    )  # fmt: skip
    unpromised = manifest["target"].get("unpromised", {})
    guarantee_results = guarantees.guarantee_results(results.guarantees, contradicted, why_unchecked, unpromised)
    scenarios = tuple(
        _scenario(scenario, manifest, results, findings, guarantee_results, missing, protection)
        for scenario in manifest["scenarios"]
        if scenario["anomaly"] is not None
    )
    verdict, reason = overall(
        scenarios, findings, lambda one: f"{one.anomaly} on broker {one.broker}, {one.topic}: {one.explanation}"
    )
    return Verdict(
        verdict=verdict,
        reason=reason,
        run_id=manifest["run_id"],
        command=manifest.get("command"),
        target=manifest["target"],
        nemesis=manifest["nemesis"],
        timings_s=manifest["timings_s"],
        scenarios=scenarios,
        findings=findings,
        guarantees=guarantee_results,
        aftermath=stuck_durations(aftermath),
        doubts=tuple(results.doubts),
        checker_errors=results.raised,
        partial=tuple(PartialEvidence(path=one.path, problem=one.problem) for one in missing),
        notes=(),
    )


def with_group_consequences(
    findings: Iterable[Finding], group_events: Iterable[Mapping[str, Any]], absent: Sequence[int]
) -> tuple[Finding, ...]:
    """Return the findings, each with its consequences for groups (`harness.judge.group_consequences`)."""
    sentences = group_consequences(group_events, absent)
    return tuple(
        replace(one, consequence="; ".join(sentences[one.place, one.broker]))
        if (one.place, one.broker) in sentences
        else one
        for one in findings
    )


def _scenario(  # noqa: PLR0917
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    results: Results,
    findings: Sequence[Finding],
    guarantee_results: Sequence[GuaranteeResult],
    missing: Sequence[EvidenceDifference],
    protection: ProtectionRecord | None,
) -> ScenarioVerdict:
    topic, control_topic, places = scenario["topic"], manifest["control"], places_of(scenario)
    topics = {one["topic"] for one in manifest["scenarios"]}
    incomplete = [one for one in missing if one.concerns(topic, topics) or one.concerns(control_topic, topics)]
    rows = [row for row in results.exposure if (row["topic"], row["partition"]) in places]
    facts = [protection.facts(row) for row in rows] if protection else rows
    control = [row for row in results.exposure if row["topic"] == control_topic]
    failure = manifest.get("failure")

    def concerns(violation: Violation) -> bool:
        return violation.place in places or violation.topic == control_topic

    reasons = [
        *([f"the run failed: {failure}"] if failure else []),
        *([f"judged by partial evidence: {'; '.join(map(str, incomplete))}"] if incomplete else []),
        *(f"broker {doubt.broker}: {doubt.reason}" for doubt in results.doubts if doubt.place in places),
        *(f"checker {name} raised {error}" for name, error in results.raised.items()),
        *guarantees.violated_on(guarantee_results, concerns),
    ]
    absent = manifest["absent_brokers"] if manifest.get("takes_away", manifest["nemesis"] != NO_FAULT) else ()
    proof = manifest.get("coordination", {})
    earned_by, lacking = earn(
        scenario,
        facts,
        control,
        absent=absent,
        is_shared=proof.get(ONE_COPY, False),
        hands_over=manifest.get("hands_over", False),
        protected_by=protection.by if protection else None,
    )
    unproven = [name for name, is_there in proof.items() if not is_there]
    if earned_by and unproven:
        earned_by, lacking = None, f"replicas were not shown to compact together: {', '.join(unproven)} is not active"
    explanations = [finding.explanation for finding in findings if finding.place in places]
    verdict, reason = decide(explanations, reasons, earned_by, lacking)
    return ScenarioVerdict(
        scenario=scenario["name"],
        anomaly=scenario["anomaly"],
        payload=scenario["payload"],
        topic=topic,
        partitions=tuple(sorted(partition for _, partition in places)),
        verdict=verdict,
        reason=reason,
        exposure={
            "earned": earned_by,
            "lacking": lacking,
            "replicas": [{name: row[name] for name in row if name not in {"run", "topic"}} for row in facts],
        },
    )


def places_of(scenario: Mapping[str, Any]) -> Collection[Place]:
    """Return the partitions of a scenario of the manifest, of which no other scenario has any."""
    return {(scenario["topic"], int(partition)) for partition in scenario["replicas"]}
