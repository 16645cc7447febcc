"""The verdict on a round, from the results of its judges (`harness.soak.judge.judge_rounds`).

A replica has a finding by the name that either judge gives. A difference without a name is unexplained: a final state
that no anomaly explains, a documented guarantee that is violated where nothing else is found, a replica that one judge
calls wrong and the other right, an audit that accuses a right replica, and a log start or a record that no client asked
for. A round is ``clean`` if all replicas were read and nothing was found. If every finding is tolerated, it is
``as-expected``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from checkers.finding import UNEXPLAINED_DIVERGENCE
from harness.escape import to_json as json_text
from harness.json_codec import to_json
from harness.judge.soak_verdict import AUDIT, CHECKERS, CLIENTS, RoundFinding, RoundVerdict, UnexplainedDifference
from harness.judge.verdict import UNKNOWN, decide
from harness.soak.causes import CAUSES, diagnose
from harness.soak.causes.cause import Judge, RoundEvidence, Symptom, symptoms_of
from harness.soak.judge.audit_tally import tally
from harness.soak.judge.group_truth import GroupTruth

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.judge.finding import Finding
    from harness.judge.guarantees import GuaranteeResult, Violation
    from harness.judge.verdict import Doubt, Verdict
    from harness.soak.causes.cause import Diagnosis
    from harness.soak.causes.reopened_transaction import Reopened
    from harness.soak.evidence.losses import Loss
    from harness.soak.evidence.replica_log import Replica
    from harness.soak.judge.gate_evidence import GateEvidence
    from harness.soak.judge.truth import Truth
    from harness.soak.play.round import PlayedRound

UNEXPLAINED: Final = "unexplained"
OF_ONE_JUDGE: Final = frozenset(name for name, cause in CAUSES.items() if not cause.is_seen_by_both)
"""Causes whose symptoms one of the judges may not see: by the logs alone, a transaction without a marker is open."""
NO_ANOMALIES: Final = frozenset(name for name, cause in CAUSES.items() if not cause.is_anomaly)


@dataclass(frozen=True)
class CheckedRound:
    """The results of the checkers of runs for a round; ``doubts`` are contradictions."""

    findings: Sequence[Finding] = ()
    guarantees: Sequence[GuaranteeResult] = ()
    doubts: Sequence[Doubt] = ()
    raised: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgeResults:
    """The results of all judges of a round.

    ``audited``: the verdict of the audit. ``gates``: None for a round without gates. ``losses``: by power failures.
    ``reopened``: transactions that are open on a broker and not in its log. ``skipped``: markers that coordinators left
    out.
    """

    truth: Truth
    checked: CheckedRound
    audited: Verdict
    groups: GroupTruth = field(default_factory=GroupTruth)
    gates: GateEvidence | None = None
    losses: Sequence[Loss] = ()
    reopened: Sequence[Reopened] = ()
    skipped: Sequence[Mapping[str, Any]] = ()


def unjudged(reason: str) -> RoundVerdict:
    """Return the verdict on a round that could not be judged, for this reason."""
    return RoundVerdict(verdict=UNKNOWN, reason=reason, audit=None, groups=None, gates=None)


def verdict_of(played: PlayedRound, results: JudgeResults | None, expected: Collection[str] = ()) -> RoundVerdict:
    """Return the verdict on a round. ``expected``: names of tolerated findings; these are listed, and no anomaly."""
    if played.failure is not None or results is None:
        return unjudged(f"the round did not go to its end: {played.failure}")
    truth, checked, groups, gates = results.truth, results.checked, results.groups, results.gates
    evidence = RoundEvidence(truth, played.plan.brokers, results.losses, results.skipped)
    findings, unexplained = _findings(evidence, checked)
    of_brokers = diagnose(evidence, [one.symptom for one in results.reopened])
    findings += [one.finding(of_brokers[one.symptom]) for one in results.reopened]
    doubts = [doubt for doubt in checked.doubts if not any(one.explains(doubt) for one in results.reopened)]
    offsets = {_symptom(Judge.GROUPS, finding): finding for finding in groups.findings()}
    diagnoses = diagnose(evidence, offsets)
    for symptom, finding in offsets.items():
        name, words = diagnoses.get(symptom, (symptom.anomaly, ""))
        explanation = _with(finding.explanation, words)
        if name:
            findings.append(replace(finding, anomaly=name, explanation=explanation))
        else:
            unexplained.append(_unexplained(CLIENTS, finding, explanation))
    tallied = tally(truth, results.audited)
    unexplained += [
        _unexplained(AUDIT, one["finding"], f"the audit {fault}: {json_text(to_json(one['finding']))}")
        for fault, entries in (
            ("accuses a right replica", tallied.wrong),
            ("copies from a wrong one", tallied.harmful),
        )
        for one in entries
    ]
    tolerated = {*expected, *NO_ANOMALIES}
    reasons = [
        *(f"unexplained: {one.explanation}" for one in unexplained),
        *(f"checker {name} raised {error}" for name, error in checked.raised.items()),
        *(f"broker {doubt.broker}, {doubt.topic}-{doubt.partition}: {doubt.reason}" for doubt in doubts),
        *([] if gates is None or gates.lack is None else [gates.lack]),
    ]
    verdict, reason = decide(
        [str(finding) for finding in findings if finding.anomaly not in tolerated],
        reasons[:1],
        _clean(results, findings),
        tolerated=[finding.anomaly for finding in findings],
    )
    return RoundVerdict(
        verdict=verdict,
        reason=reason,
        findings=tuple(findings),
        unexplained=tuple(unexplained),
        guarantees=tuple(checked.guarantees),
        audit=to_json(tallied),
        groups=groups.counts,
        gates=None if gates is None else gates.counts,
        doubts=tuple(checked.doubts),
        checker_errors=checked.raised,
    )


def _clean(results: JudgeResults, tolerated: Sequence[RoundFinding]) -> str:
    """Return the proof of a round without other findings than tolerated ones."""
    groups, gates = results.groups, results.gates
    known = Counter(finding.anomaly for finding in tolerated)
    but = f", but for known findings: {', '.join(f'{n} {name}' for name, n in sorted(known.items()))}" if known else ""
    proofs = [f"{len(results.truth.wrongs)} replicas were read whole and give what clients know{but}"]
    if groups.views:
        views = f"{groups.views} views of {groups.keys} offsets of groups"
        proofs.append(f"{views} were held against clients, too" if groups.wrongs else f"so do {views}")
    if gates is not None:
        counts = gates.counts
        proofs.append(
            f"the gates held {counts['held']} exposed outages of {counts['partitions']} partitions, and let go"
        )
    return "; ".join(proofs)


def _by_checkers(
    truth: Truth,
    names: Mapping[Replica, Mapping[str, Iterable[Symptom]]],
    findings: Mapping[Symptom, Sequence[Finding]],
    diagnoses: Mapping[Symptom, Diagnosis],
) -> tuple[dict[Replica, dict[str, list[Finding]]], set[Replica]]:
    """Return the checkers' findings on each replica by name, and the replicas where clients can name the nameless."""
    by_name: dict[Replica, dict[str, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    agreed: set[Replica] = set()
    for symptom, of_symptom in findings.items():
        replica = (symptom.broker, symptom.partition)
        name = diagnoses[symptom].name if symptom in diagnoses else symptom.anomaly
        if name != UNEXPLAINED_DIVERGENCE:
            by_name[replica][name] += of_symptom
        elif symptom.key in _named_keys(names.get(replica, {})):
            # Clients know it for an aborted delete that this replica has carried out, and cleaned away.
            agreed.add(replica)
        elif (symptom.partition, symptom.key) not in truth.unknown_keys:
            # Else a delete without an acknowledgement may have been written, and compacted away with what it deleted.
            by_name[replica][UNEXPLAINED_DIVERGENCE] += of_symptom
    return by_name, agreed


def _findings(evidence: RoundEvidence, checked: CheckedRound) -> tuple[list[RoundFinding], list[UnexplainedDifference]]:
    truth, symptoms = evidence.truth, symptoms_of(evidence.truth)
    of_symptoms: dict[Symptom, list[Finding]] = defaultdict(list)
    for finding in checked.findings:
        # A transaction with records below the log start, whose marker was removed since, is open for no consumer.
        if finding.offset >= truth.log_starts.get((finding.broker, finding.place), 0):
            of_symptoms[_symptom(Judge.CHECKERS, finding)].append(finding)
    diagnoses = diagnose(evidence, [*symptoms, *of_symptoms])
    names: dict[Replica, dict[str, list[Symptom]]] = defaultdict(lambda: defaultdict(list))
    for symptom in symptoms:
        name = diagnoses[symptom].name if symptom in diagnoses else UNEXPLAINED
        names[symptom.broker, symptom.partition][name].append(symptom)
    by_checkers, agreed = _by_checkers(truth, names, of_symptoms, diagnoses)
    findings, unexplained = [], []
    for replica in sorted(names.keys() | by_checkers.keys()):
        broker, (topic, partition) = replica
        ours, theirs = names.get(replica, {}), by_checkers.get(replica, {})
        for name in sorted((ours.keys() | theirs.keys()) - {UNEXPLAINED, UNEXPLAINED_DIVERGENCE}):
            of_clients, of_checkers = ours.get(name, []), theirs.get(name, [])
            first = of_clients[0] if of_clients else _symptom(Judge.CHECKERS, of_checkers[0])
            text = of_checkers[0].explanation if of_checkers else _words(first.wrong)
            findings.append(
                RoundFinding(
                    anomaly=name,
                    broker=broker,
                    topic=topic,
                    partition=partition,
                    count=max(len(of_clients), len(of_checkers)),
                    found_by=(*([CLIENTS] if of_clients else []), *([CHECKERS] if of_checkers else [])),
                    explanation=_with(text, diagnoses[first].words if first in diagnoses else ""),
                    witness=of_checkers[0].witness if of_checkers else vars(first.wrong),
                )
            )
        nameless = [(CLIENTS, _words(symptom.wrong)) for symptom in ours.get(UNEXPLAINED, [])]
        nameless += [(CHECKERS, finding.explanation) for finding in theirs.get(UNEXPLAINED_DIVERGENCE, [])]
        if not (ours and theirs) and replica not in agreed and not ours.keys() | theirs.keys() <= OF_ONE_JUDGE:
            found_by, others = (CLIENTS, "checkers find") if ours else (CHECKERS, "by what clients know there is")
            named_here = ", ".join(sorted(ours or theirs))
            nameless.append((found_by, f"{named_here}, and {others} nothing wrong with this replica"))
        unexplained += [
            UnexplainedDifference(found_by=judge, broker=broker, topic=topic, partition=partition, explanation=text)
            for judge, text in nameless
        ]
    # Offsets that were lost are given to other records.
    wrong_places = {finding.place for finding in findings} | {loss.partition for loss in evidence.losses}
    unexplained += [
        _unexplained(CHECKERS, violation, f"the guarantee {one.guarantee} is violated: {violation.explanation}")
        for one in checked.guarantees
        for violation in one.violations
        if violation.place not in wrong_places
    ]
    return findings, unexplained


def _named_keys(names: Mapping[str, Iterable[Symptom]]) -> set[str | None]:
    """Return the keys of the symptoms with a name."""
    return {symptom.key for name, symptoms in names.items() if name != UNEXPLAINED for symptom in symptoms}


def _symptom(judge: Judge, finding: Finding | RoundFinding) -> Symptom:
    key = to_json(getattr(finding, "key", None)) or {}
    return Symptom(judge, finding.broker, finding.place, key.get("text"), anomaly=finding.anomaly)


def _unexplained(found_by: str, at: Finding | RoundFinding | Violation, explanation: str) -> UnexplainedDifference:
    return UnexplainedDifference(
        found_by=found_by, broker=at.broker, topic=at.topic, partition=at.partition, explanation=explanation
    )


def _words(wrong: Any) -> str:
    at = "" if wrong.offset is None else f" at offset {wrong.offset}"
    return f"{wrong.kind}: key {wrong.key}{at}: here {wrong.here}, by clients {wrong.truth}"


def _with(explanation: str, words: str) -> str:
    return f"{explanation}; {words}" if words else explanation
