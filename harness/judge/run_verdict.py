"""The verdict of a run, from the results of its checkers.

A run has to earn ``clean`` (`harness.judge.earned`). Without a finding and without such a proof the verdict is
``unknown``, also if the evidence contradicts itself.

The documented guarantees (`checkers.guarantees`) are reported next to the findings. An anomaly by itself breaks
guarantees on the replica that was absent, and these violations add nothing. Without an anomaly, a guarantee that every
replica violates is a finding. A violation on some replicas depends on more evidence than a finding (observations, and
clocks of one host). So such a scenario is ``unknown``, and the reason names the guarantee; as the control partition
shares the cluster, a violation there forbids ``clean`` everywhere. A guarantee without evidence forbids nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.clients import ALSO_OF_SLOW_BROKERS, INVALID_TXN_STATE
from harness.judge import guarantees
from harness.judge.earned import ProtectionRecord, earn
from harness.judge.finding import CheckerRow, Finding, Place, brokers_text, by_place, finding_about
from harness.judge.guarantees import GuaranteeResult
from harness.judge.verdict import Doubt, PartialEvidence, ScenarioVerdict, Verdict, decide, overall
from harness.run_folder.inventory import EvidenceDifference
from harness.schedules.scenario import Critical, scenario_and_process

LONGEST_PASS_S: Final = 10.0
STALLED_S: Final = 20.0
LONGEST_SILENCE_S: Final = 1.0
"""A machine on which a broker is silent for longer may be the reason why something did not happen."""
STALE_REQUESTS_UNKNOWN: Final = "it is not known whether brokers refuse stale requests"
LIMITS: Final = ("max.compaction.lag.ms", "delete.retention.ms", "producer.id.expiration.ms")
_DEFAULTS_MS: Final = {"delete.retention.ms": 86_400_000, "producer.id.expiration.ms": 86_400_000}


@dataclass(frozen=True)
class Results:
    """Rows of a run's checkers, and exceptions by checker. ``guarantees``: None where they were not checked."""

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

    why_unchecked = results.raised.get(guarantees.CHECKER) or manifest.get("failure")
    guarantee_results = guarantees.guarantee_results(
        results.guarantees, contradicted, why_unchecked or "it was not checked: the run did not go to its end"
    )
    replicas = {
        (scenario["topic"], int(partition)): brokers
        for scenario in manifest["scenarios"]
        for partition, brokers in scenario["replicas"].items()
    }
    absent = manifest["absent_brokers"] if manifest.get("takes_away", True) else ()
    trusted.extend(_violated_everywhere(guarantee_results, replicas, {finding.place for finding in trusted}))
    if protection is None and not manifest.get("coordination"):
        trusted.extend(_unremoved(manifest, results.exposure, absent))
        trusted.extend(stalled(manifest.get("stall")))
        trusted.extend(_refused(manifest))
        trusted.extend(_accepted(manifest))
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
    target = manifest["target"]
    unsent = [] if manifest.get("stale_requests_sent", True) else [STALE_REQUESTS_UNKNOWN]
    status = [f"the target {target['name']} is {target['status']}"] if target.get("status") else []
    return Verdict(
        verdict=verdict,
        reason=reason,
        command=manifest.get("command"),
        **{name: manifest[name] for name in ("run_id", "target", "nemesis", "timings_s")},
        scenarios=scenarios,
        findings=findings,
        guarantees=guarantee_results,
        doubts=tuple(results.doubts),
        checker_errors=results.raised,
        partial=tuple(PartialEvidence(path=difference.path, problem=difference.problem) for difference in missing),
        notes=(*status, *manifest.get("departures", ()), *unsent),
    )


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
        str(difference)
        for difference in missing
        if difference.concerns(topic, topics) or difference.concerns(control_topic, topics)
    ]
    rows = [row for row in results.exposure if (row["topic"], row["partition"]) in places]
    facts = [protection.facts(row) for row in rows] if protection else rows
    failure = manifest.get("failure")
    reasons = [
        *([f"the run failed: {failure}"] if failure else []),
        *([f"judged by partial evidence: {'; '.join(incomplete)}"] if incomplete else []),
        *(f"broker {doubt.broker}: {doubt.reason}" for doubt in results.doubts if doubt.place in places),
        *(f"checker {name} raised {error}" for name, error in results.raised.items()),
        *guarantees.violated_on(
            guarantee_results, lambda violation: violation.place in places or violation.topic == control_topic
        ),
    ]
    earned_by, lacking = earn(
        scenario,
        facts,
        [row for row in results.exposure if row["topic"] == control_topic],
        absent=absent,
        hands_over=manifest.get("hands_over", False),
        protected_by=protection.by if protection else None,
    )
    unproven = [name for name, is_active in manifest.get("coordination", {}).items() if not is_active]
    if earned_by and unproven:
        earned_by, lacking = None, f"replicas were not shown to compact together: {', '.join(unproven)} is not active"
    explanations = [finding.explanation for finding in findings if finding.place in places]
    verdict, reason = decide(explanations, reasons, earned_by, lacking)
    return ScenarioVerdict(
        scenario=scenario["name"],
        **{name: scenario[name] for name in ("anomaly", "payload", "topic")},
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


def _violated_everywhere(
    results: Sequence[GuaranteeResult], replicas: Mapping[Place, Sequence[int]], named: Collection[Place]
) -> Iterator[Finding]:
    """Yield ``violated-<guarantee>`` for each partition of which every replica violates it at the same offset.

    Also for a violation that does not depend on a replica. For example, no replica serves a record any more that is its
    key's last committed record. ``named``: partitions with another finding, as an anomaly breaks guarantees too.
    """
    for result in results:
        for place in sorted({violation.place for violation in result.violations} & replicas.keys() - named):
            violations = [violation for violation in result.violations if violation.place == place]
            first = violations[0]
            brokers = {violation.broker for violation in violations if violation.offset == first.offset}
            if first.broker is None or brokers.issuperset(replicas[place]):
                # These guarantees are about records that consumers receive.
                effect = "visible" if result.guarantee in {"last-value", "order", "offsets"} else "latent"
                text = f"every replica violates the guarantee {result.guarantee}: {first.explanation}"
                facts = {"offset": first.offset or 0, "effect": effect, "explanation": text}
                yield finding_about(f"violated-{result.guarantee}", place, replicas[place], first.witness, **facts)


def _unremoved(manifest: Mapping[str, Any], exposure: Sequence[CheckerRow], absent: Sequence[int]) -> Iterator[Finding]:
    """Yield ``stopped-cleaner``, ``retained-tombstone`` or ``retained-marker``, where no replica removed a record.

    Every replica that stayed still has a record that had to be removed, although the run waited for `LONGEST_PASS_S`
    longer than its settings allow: `LIMITS` are ``max.compaction.lag.ms``, after which the log has to be cleaned
    (KIP-354, `LogCleanerManager.grabFilthiestCompactedLog`), ``delete.retention.ms`` (KIP-534), and
    ``producer.id.expiration.ms``, until which a producer's last batch is kept (`Cleaner.cleanInto`). The cleaners have
    stopped if none has passed the record. This is judged only with the first setting, and not for replicas that are
    kept from cleaning alone: with a gate, a guard or coordinated compaction.
    """
    settings = _settings(manifest)
    waited_s = manifest["timings_s"].get("clean", 0)
    limits_ms: dict[str, int] = {name: int(settings[name]) for name in LIMITS if name in settings}
    if len(limits_ms) < len(LIMITS) or waited_s < sum(limits_ms.values()) / 1000 + LONGEST_PASS_S:
        return
    stayed = [row for row in exposure if row["broker"] not in absent and row["kind"] != Critical.SUPERSEDED]
    for place, rows in by_place(stayed).items():
        for kind in sorted({row["kind"] for row in rows}):
            of_kind = [row for row in rows if row["kind"] == kind]
            passed = {row["cleaned_past"] for row in of_kind}
            if all(row["held_critical"] and row["held_after"] for row in of_kind) and len(passed) == 1:
                brokers, offset = [row["broker"] for row in of_kind], of_kind[0]["critical_offset"]
                anomaly, did = "stopped-cleaner", f"did not clean offset {offset}"
                if passed.pop():
                    anomaly, did = f"retained-{kind}", f"passed offset {offset} and did not remove the {kind}"
                text, witness = f"the cleaners of {brokers_text(brokers)} {did}", {"waited_s": waited_s, **limits_ms}
                yield finding_about(anomaly, place, brokers, witness, offset=offset, effect="latent", explanation=text)


def stalled(stall: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Yield ``stalled-replica`` for a replica that did not get what Kafka writes to it within milliseconds.

    ``stall``: broker, topic and partition of the replica, ``waited_s`` and ``awaited``. No fault was
    active. The machine was not too slow: no broker took longer than ``longest_silence_s`` until its next answer, which
    is a small part of ``waited_s``.
    """
    if stall and stall["waited_s"] >= max(STALLED_S, stall["longest_silence_s"] * STALLED_S / LONGEST_SILENCE_S):
        place, brokers = (stall["topic"], stall["partition"]), [stall["broker"]]
        text = f"{stall['awaited']}; no fault was active, and every broker answered all the time"
        witness = {name: stall[name] for name in ("waited_s", "longest_silence_s")}
        yield finding_about("stalled-replica", place, brokers, witness, offset=0, effect="visible", explanation=text)


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {**_DEFAULTS_MS, **manifest.get("broker_settings", {}), **manifest.get("topic_settings", {})}


def _refused(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield ``refused-operation`` for a valid operation that a broker refused without a fault (`ClientError.refusal`).

    ``refusal`` of the manifest: the client's ``process``, the ``error``, the ``operation`` in a sentence, and
    ``longest_silence_s``. A broker forgets after ``producer.id.expiration.ms`` that it has verified a transaction, and
    refuses a record that is appended later (KIP-890, `ProducerStateManager.removeExpiredProducers`).
    """
    refusal = manifest.get("refusal")
    if not refusal:
        return
    limit_s = LONGEST_SILENCE_S
    if refusal["error"] == INVALID_TXN_STATE:
        limit_s = min(limit_s, int(_settings(manifest)["producer.id.expiration.ms"]) / 1000)
    if refusal["error"] not in ALSO_OF_SLOW_BROKERS or refusal["longest_silence_s"] <= limit_s:
        name, _ = scenario_and_process(refusal["process"])
        scenario = next((each for each in manifest["scenarios"] if each["name"] == name), manifest["scenarios"][0])
        text = f"{refusal['operation']}; no fault was injected, and the operation is valid"
        yield _about_scenario("refused-operation", scenario, text, {"error": refusal["error"]})


def _accepted(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield ``accepted-request`` for stale requests that brokers accepted (`harness.play.stale_requests`)."""
    if requests := manifest.get("accepted_requests"):
        text = f"brokers accepted requests that they must refuse: {'; '.join(requests)}"
        yield _about_scenario("accepted-request", manifest["scenarios"][0], text, {"requests": requests})


def _about_scenario(anomaly: str, scenario: Mapping[str, Any], text: str, witness: Mapping[str, Any]) -> Finding:
    """Return a finding about all replicas of a scenario's first partition."""
    place = min(places_of(scenario))
    brokers = scenario["replicas"][str(place[1])]
    return finding_about(anomaly, place, brokers, witness, offset=0, effect="visible", explanation=text)
