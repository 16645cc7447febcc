"""The verdict on a round, from the results of its judges (`harness.soak.judge.judge_rounds`).

A difference without a name is unexplained: a final state that no anomaly explains, a guarantee that is violated where
no finding explains it, a replica that one judge calls wrong and the other right, an audit that accuses a right replica,
a log start or a record that no client asked for. A round is ``clean`` if all replicas were read, a record of a client
was acknowledged or is in a log, and nothing was found; ``as-expected`` if every finding is tolerated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from checkers.finding import UNEXPLAINED_DIVERGENCE
from harness.escape import to_json as json_text
from harness.json_codec import to_json
from harness.judge.finding import Finding
from harness.judge.guarantees import GuaranteeResult
from harness.judge.run_verdict import stalled
from harness.judge.verdict import (
    AUDIT,
    BROKER,
    CHECKERS,
    CLIENTS,
    UNKNOWN,
    Doubt,
    RoundFinding,
    RoundVerdict,
    UnexplainedDifference,
    Verdict,
    decide,
)
from harness.kafka_api import TopicPartition
from harness.soak.causes import CAUSES, diagnose
from harness.soak.causes.cause import GROUPS, Diagnosis, RoundEvidence, Symptom, symptoms_of
from harness.soak.causes.reopened_transaction import explains
from harness.soak.evidence.client_log import UNKNOWN as UNKNOWN_OUTCOME
from harness.soak.evidence.replica_log import Replica
from harness.soak.judge.audit_tally import tally
from harness.soak.judge.group_truth import GroupTruth
from harness.soak.judge.truth import FILLER

if TYPE_CHECKING:
    from harness.soak.judge.gate_evidence import GateEvidence
    from harness.soak.play.round import PlayedRound

UNEXPLAINED: Final = "unexplained"
NOTHING_WRITTEN: Final = "nothing was compared: no record of a client was acknowledged or is on a replica"
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
    """All judges' results. ``gates``: None without gates. ``reopened``: open by a broker, not by its log."""

    evidence: RoundEvidence
    checked: CheckedRound
    audited: Verdict
    groups: GroupTruth = field(default_factory=GroupTruth)
    gates: GateEvidence | None = None
    reopened: Sequence[Symptom] = ()


def unjudged(reason: str) -> RoundVerdict:
    """Return the verdict on a round that could not be judged, for this reason."""
    return RoundVerdict(verdict=UNKNOWN, reason=reason, audit=None, groups=None, gates=None)


def verdict_of(played: PlayedRound, results: JudgeResults | None, expected: Collection[str] = ()) -> RoundVerdict:
    """Return the verdict on a round. ``expected``: names of tolerated findings; these are listed, and no anomaly."""
    for stall in stalled(played.stall):
        finding = _finding(stall.anomaly, {}, [replace(_symptom(stall), judge=BROKER)])
        verdict, reason = decide([str(finding)], [], "")
        return replace(unjudged(reason), verdict=verdict, findings=(finding,))
    if played.failure is not None or results is None:
        return unjudged(f"the round did not go to its end: {played.failure}")
    evidence, checked, groups, gates = results.evidence, results.checked, results.groups, results.gates
    findings, unexplained = _findings(evidence, checked)
    others = [*results.reopened, *groups.symptoms()]
    diagnoses = diagnose(evidence, others)
    for symptom in others:
        if name := diagnoses[symptom].name if symptom in diagnoses else symptom.anomaly:
            findings.append(_finding(name, diagnoses, [symptom]))
        else:
            unexplained.append(_unexplained(CLIENTS, symptom.broker, symptom.partition, symptom.explanation))
    tallied = tally(evidence.truth, results.audited)
    has_records = any(write.client != FILLER for write in evidence.truth.at.values())
    unexplained += [
        _unexplained(AUDIT, finding.broker, finding.place, f"the audit {fault}: {json_text(to_json(finding))}")
        for fault, entries in (("accuses a right replica", tallied.wrong), ("copies from a wrong one", tallied.harmful))
        for finding in (entry["finding"] for entry in entries)
    ]
    reasons = [
        *(f"unexplained: {difference.explanation}" for difference in unexplained),
        *(f"checker {name} raised {error}" for name, error in checked.raised.items()),
        *(
            f"broker {doubt.broker}, {doubt.topic}-{doubt.partition}: {doubt.reason}"
            for doubt in checked.doubts
            if not any(explains(symptom, doubt) for symptom in results.reopened)
        ),
        *([] if gates is None or gates.problem is None else [gates.problem]),
        *([] if has_records or groups.views else [NOTHING_WRITTEN]),
    ]
    verdict, reason = decide(
        [str(finding) for finding in findings if finding.anomaly not in {*expected, *NO_ANOMALIES}],
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
    groups, gates, replicas = results.groups, results.gates, results.evidence.truth.wrongs
    counts = sorted(Counter(finding.anomaly for finding in tolerated).items())
    but = f", but for known findings: {', '.join(f'{n} {name}' for name, n in counts)}" if counts else ""
    proofs = [f"{len(replicas)} replicas were read in full and agree with the history of clients{but}"]
    if groups.views:
        views = f"{groups.views} views of {groups.keys} offsets of groups"
        proofs.append(f"{views} were compared with clients, too" if groups.wrongs else f"so do {views}")
    if gates is not None:
        held = "the gates held {held} exposed outages of {partitions} partitions, and released them"
        proofs.append(held.format_map(gates.counts))
    return "; ".join(proofs)


def _findings(evidence: RoundEvidence, checked: CheckedRound) -> tuple[list[RoundFinding], list[UnexplainedDifference]]:
    """Return the findings of clients and checkers by replica and name, and the differences without a name."""
    truth = evidence.truth
    symptoms = [
        *symptoms_of(truth),
        # A transaction with records below the log start, whose marker was removed since, is open for no consumer.
        *(_symptom(it) for it in checked.findings if it.offset >= truth.log_starts.get((it.broker, it.place), 0)),
    ]
    diagnoses = diagnose(evidence, symptoms)
    # By the logs alone, a transaction without a marker is open, for example.
    seen_by_one = {name for name, cause in CAUSES.items() if not cause.is_seen_by_both}
    by_clients: dict[Replica, dict[str, list[Symptom]]] = defaultdict(lambda: defaultdict(list))
    by_checkers: dict[Replica, dict[str, list[Symptom]]] = defaultdict(lambda: defaultdict(list))
    named_keys: set[tuple[Replica, str | None]] = set()
    # Clients do not know the outcome of every transaction, nor checkers every record of a topic that was created again.
    hidden = {(write.place, write.key) for write in truth.at.values() if write.before_recreation}
    agreed = {
        (it.broker, it.place) for it in checked.findings if truth.outcome_at(it.place, it.offset) == UNKNOWN_OUTCOME
    } | {(it.broker, it.partition) for it in symptoms if it.wrong and (it.partition, it.wrong.key) in hidden}
    for symptom in symptoms:
        replica = (symptom.broker, symptom.partition)
        name = diagnoses[symptom].name if symptom in diagnoses else symptom.anomaly
        if symptom.judge == CLIENTS:
            by_clients[replica][name or UNEXPLAINED].append(symptom)
            if name:
                named_keys.add((replica, symptom.key))
        elif name == UNEXPLAINED_DIVERGENCE and (replica, symptom.key) in named_keys:
            # Clients have a name for it: an aborted delete that this replica has carried out, and cleaned away.
            agreed.add(replica)
        elif name != UNEXPLAINED_DIVERGENCE or (symptom.partition, symptom.key) not in truth.unknown_keys:
            # Otherwise, an unacknowledged delete may have been written, and compacted away with the deleted value.
            by_checkers[replica][name].append(symptom)
    findings, unexplained = [], []
    for replica in sorted(by_clients.keys() | by_checkers.keys()):
        ours, theirs = by_clients.get(replica, {}), by_checkers.get(replica, {})
        findings += [
            _finding(name, diagnoses, ours.get(name, []), theirs.get(name, []))
            for name in sorted((ours.keys() | theirs.keys()) - {UNEXPLAINED, UNEXPLAINED_DIVERGENCE})
        ]
        nameless = [*ours.get(UNEXPLAINED, []), *theirs.get(UNEXPLAINED_DIVERGENCE, [])]
        unexplained += [_unexplained(symptom.judge, *replica, symptom.explanation) for symptom in nameless]
        if not (ours and theirs) and replica not in agreed and not ours.keys() | theirs.keys() <= seen_by_one:
            found_by, others = (CLIENTS, "checkers find") if ours else (CHECKERS, "by the history of clients there is")
            named_here = ", ".join(sorted(ours or theirs))
            text = f"{named_here}, and {others} nothing wrong with this replica"
            unexplained.append(_unexplained(found_by, *replica, text))
    # Offsets that were lost are given to other records.
    explained = {finding.place for finding in findings} | {loss.partition for loss in evidence.losses}
    violations = [(r.guarantee, v) for r in checked.guarantees for v in r.violations if v.place not in explained]
    unexplained += [
        _unexplained(CHECKERS, v.broker, v.place, f"the guarantee {name} is violated: {v.explanation}")
        for name, v in violations
    ]
    return findings, unexplained


def _symptom(finding: Finding) -> Symptom:
    return Symptom(
        CHECKERS,
        finding.broker,
        finding.place,
        (to_json(finding.key) or {}).get("text"),
        anomaly=finding.anomaly,
        explanation=finding.explanation,
        witness=finding.witness,
    )


def _finding(
    name: str, diagnoses: Mapping[Symptom, Diagnosis], symptoms: Sequence[Symptom], of_checkers: Sequence[Symptom] = ()
) -> RoundFinding:
    """Return the finding of one name on a replica, by the symptoms of clients, or of the broker, and of checkers."""
    first = [*symptoms, *of_checkers][0]
    words = diagnoses[first].words if first in diagnoses else ""
    described = first if words else [*of_checkers, *symptoms][0]
    return RoundFinding(
        anomaly=name,
        broker=first.broker,
        topic=first.partition[0],
        partition=first.partition[1],
        count=max(sum(symptom.count for symptom in symptoms), len(of_checkers)),
        found_by=tuple(CLIENTS if of[0].judge == GROUPS else of[0].judge for of in (symptoms, of_checkers) if of),
        explanation=f"{described.explanation}; {words}" if words else described.explanation,
        witness=described.witness,
    )


def _unexplained(found_by: str, broker: int | None, place: TopicPartition, text: str) -> UnexplainedDifference:
    topic, partition = place
    return UnexplainedDifference(found_by=found_by, broker=broker, topic=topic, partition=partition, explanation=text)
