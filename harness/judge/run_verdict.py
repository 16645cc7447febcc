"""The verdict of a run, from the results of its checkers.

A run has to earn ``clean`` (`harness.judge.earned`). Without a finding and without such a proof the verdict is
``unknown``, also if the evidence contradicts itself.

The documented guarantees (`checkers.guarantees`) are reported next to the findings. An anomaly by itself breaks
guarantees on the replica that was absent, and these violations add nothing. Without an anomaly, a guarantee that every
replica violates is a finding (`harness.judge.every_replica`). A violation on some replicas depends on more evidence
than a finding (observations, and clocks of one host). So such a scenario is ``unknown``, and the reason names the
guarantee; as the control partition shares the cluster, a violation there forbids ``clean`` everywhere. A guarantee
without evidence forbids nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.judge import guarantees
from harness.judge.earned import ProtectionRecord, earn
from harness.judge.every_replica import unremoved, violated_everywhere
from harness.judge.finding import CheckerRow, Finding, Place
from harness.judge.guarantees import GuaranteeResult
from harness.judge.verdict import Doubt, PartialEvidence, ScenarioVerdict, Verdict, decide, overall
from harness.run_folder.inventory import EvidenceDifference
from harness.schedules.scenario import Critical

NO_FAULT = "none"
"""The only nemesis without an absent broker, for run folders whose manifest does not have ``takes_away``."""


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
    *,
    missing: Sequence[EvidenceDifference] = (),
    protection: ProtectionRecord | None = None,
) -> Verdict:
    """Return the verdict of a run.

    ``missing``: evidence that the checkers did not read, as it differs from the files that the run wrote; it forbids
    ``clean`` for every scenario that it concerns. ``protection``: the actions of the gates or the guard; None for a run
    without.
    """
    contradicted = {(*doubt.place, doubt.broker) for doubt in results.doubts if doubt.kind == "contradiction"}
    trusted = [finding for finding in results.findings if (*finding.place, finding.broker) not in contradicted]
    order = {place: index for index, scenario in enumerate(manifest["scenarios"]) for place in places_of(scenario)}
    by_topic = {scenario["topic"]: index for index, scenario in enumerate(manifest["scenarios"])}

    def position(finding: Finding) -> tuple[int, int, int, int]:
        index = order.get(finding.place, by_topic.get(finding.topic, 0))
        return index, finding.partition, finding.broker, finding.offset

    why_unchecked = (
        ""
        if results.guarantees is not None
        else (
            results.raised.get(guarantees.CHECKER)
            or manifest.get("failure")
            or "it was not checked: the run did not go to its end"
        )
    )
    guarantee_results = guarantees.guarantee_results(results.guarantees, contradicted, why_unchecked)
    replicas = {
        (scenario["topic"], int(partition)): brokers
        for scenario in manifest["scenarios"]
        for partition, brokers in scenario["replicas"].items()
    }
    absent = manifest["absent_brokers"] if manifest.get("takes_away", manifest["nemesis"] != NO_FAULT) else ()
    trusted.extend(violated_everywhere(guarantee_results, replicas, trusted))
    if protection is None and not manifest.get("coordination"):
        of_replicas = [row for row in results.exposure if row["kind"] != Critical.SUPERSEDED]
        trusted.extend(unremoved(manifest, of_replicas, absent))
    findings = tuple(sorted(trusted, key=position))
    scenarios = tuple(
        _scenario(scenario, manifest, results, findings, guarantee_results, missing, protection, absent)
        for scenario in manifest["scenarios"]
        if scenario["anomaly"] is not None
    )
    verdict, reason = overall(
        scenarios,
        findings,
        lambda finding: f"{finding.anomaly} on broker {finding.broker}, {finding.topic}: {finding.explanation}",
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
        doubts=tuple(results.doubts),
        checker_errors=results.raised,
        partial=tuple(PartialEvidence(path=difference.path, problem=difference.problem) for difference in missing),
        notes=(*_status_note(manifest["target"]), *manifest.get("departures", ())),
    )


def _status_note(target: Mapping[str, Any]) -> tuple[str, ...]:
    status = target.get("status")
    return (f"the target {target['name']} is {status}",) if status else ()


def _scenario(  # noqa: PLR0917
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    results: Results,
    findings: Sequence[Finding],
    guarantee_results: Sequence[GuaranteeResult],
    missing: Sequence[EvidenceDifference],
    protection: ProtectionRecord | None,
    absent: Sequence[int],
) -> ScenarioVerdict:
    topic, control_topic, places = scenario["topic"], manifest["control"], places_of(scenario)
    topics = {other["topic"] for other in manifest["scenarios"]}
    incomplete = [
        difference
        for difference in missing
        if difference.concerns(topic, topics) or difference.concerns(control_topic, topics)
    ]
    rows = [row for row in results.exposure if (row["topic"], row["partition"]) in places]
    facts = [protection.facts(row) for row in rows] if protection else rows
    failure = manifest.get("failure")
    reasons = [
        *([f"the run failed: {failure}"] if failure else []),
        *([f"judged by partial evidence: {'; '.join(map(str, incomplete))}"] if incomplete else []),
        *(f"broker {doubt.broker}: {doubt.reason}" for doubt in results.doubts if doubt.place in places),
        *(f"checker {name} raised {error}" for name, error in results.raised.items()),
        *guarantees.violated_on(
            guarantee_results, lambda violation: violation.place in places or violation.topic == control_topic
        ),
    ]
    proof = manifest.get("coordination", {})
    earned_by, lacking = earn(
        scenario,
        facts,
        [row for row in results.exposure if row["topic"] == control_topic],
        absent=absent,
        hands_over=manifest.get("hands_over", False),
        protected_by=protection.by if protection else None,
    )
    unproven = [name for name, is_active in proof.items() if not is_active]
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
    """Return the partitions of a scenario of the manifest; no partition belongs to two scenarios."""
    return {(scenario["topic"], int(partition)) for partition in scenario["replicas"]}
