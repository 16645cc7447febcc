"""The verdict on a round, from what its judges say (`harness.soak.judge.judges`).

A replica has a finding by the name that either judge gives. `UNEXPLAINED` is what has no name: a final state that no
anomaly explains, a documented guarantee that is violated where nothing else is found, a replica that one of both judges
calls wrong and the other right, an audit that accuses a right replica, and a log start or a record that nobody asked
for. A round is clean where all of it was read and nothing of that was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkers.finding import UNEXPLAINED_DIVERGENCE
from harness.escape import to_json
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.soak.causes import CAUSES, diagnose
from harness.soak.causes.cause import Judge, RoundEvidence, Symptom, symptoms_of
from harness.soak.judge.group_truth import GroupTruth
from harness.soak.judge.tally import tally

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.soak.causes.cause import Diagnosis
    from harness.soak.causes.reopened_transaction import Reopened
    from harness.soak.evidence.losses import Loss
    from harness.soak.evidence.replica_log import Replica
    from harness.soak.judge.gate_evidence import GateEvidence
    from harness.soak.judge.truth import Truth
    from harness.soak.play.round import PlayedRound

CLIENTS, CHECKERS = "clients", "checkers"
"""The judges that a finding names."""
UNEXPLAINED: Final = "unexplained"
OF_ONE_JUDGE: Final = frozenset(name for name, cause in CAUSES.items() if not cause.is_seen_by_both)
"""Causes whose symptoms one of the judges may not see: by the logs alone, a transaction without a marker is open."""
NO_ANOMALIES: Final = frozenset(name for name, cause in CAUSES.items() if not cause.is_anomaly)


@dataclass(frozen=True)
class Checked:
    """What the checkers of runs say of a round: findings, guarantees, contradictions, and those that raised."""

    findings: Sequence[dict[str, Any]] = ()
    guarantees: Sequence[dict[str, Any]] = ()
    doubts: Sequence[dict[str, Any]] = ()
    raised: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Statements:
    """What all judges of a round say.

    ``audited``: by the audit beside them. ``gates``: None for a round without. ``losses``: by power failures.
    ``reopened``: by brokers against their own logs. ``skipped``: markers that coordinators say that they left out.
    """

    truth: Truth
    checked: Checked
    audited: Mapping[str, Any]
    groups: GroupTruth = field(default_factory=GroupTruth)
    gates: GateEvidence | None = None
    losses: Sequence[Loss] = ()
    reopened: Sequence[Reopened] = ()
    skipped: Sequence[Mapping[str, Any]] = ()


def unjudged(reason: str) -> dict[str, Any]:
    """Return the content of ``verdict.json`` of a round of which nothing can be said, with why."""
    return {
        "verdict": UNKNOWN, "reason": reason,
        "findings": [], "unexplained": [], "guarantees": [], "audit": None, "groups": None, "gates": None,
    }  # fmt: skip


def verdict_of(
    played: PlayedRound,
    statements: Statements | None,
    expected: Collection[str] = (),
) -> dict[str, Any]:
    """Return the content of a round's ``verdict.json``.

    ``findings``: one a replica and name, with ``found_by`` and how many things it is wrong about. ``unexplained``:
    things without a name. ``audit``: what it did against the truth, see `harness.soak.judge.tally`. ``expected``: names
    that are tolerated: such findings are listed, and cause no anomaly.
    """
    if played.failure is not None or statements is None:
        return unjudged(f"the round did not go to its end: {played.failure}")
    truth, checked, groups, gates = statements.truth, statements.checked, statements.groups, statements.gates
    evidence = RoundEvidence(truth, played.plan.brokers, statements.losses, statements.skipped)
    findings, unexplained = _findings(evidence, checked)
    of_brokers = diagnose(evidence, [one.symptom for one in statements.reopened])
    findings += [one.finding(of_brokers[one.symptom]) for one in statements.reopened]
    doubts = [one for one in checked.doubts if not any(again.explains(one) for again in statements.reopened)]
    offsets = {_symptom(Judge.GROUPS, one): one for one in groups.findings()}
    diagnoses = diagnose(evidence, offsets)
    for symptom, one in offsets.items():
        name, words = diagnoses.get(symptom, (symptom.anomaly, ""))
        explanation = _with(one["explanation"], words)
        if name:
            findings.append({**one, "anomaly": name, "explanation": explanation, "found_by": [CLIENTS]})
        else:
            unexplained.append(_unexplained(CLIENTS, explanation, **_place(one)))
    tallied = tally(truth, statements.audited)
    unexplained += [
        _unexplained("audit", f"the audit {what}: {to_json(one['finding'])}", **_place(one["finding"]))
        for what, some in (("accuses a right replica", tallied.wrong), ("copies from a wrong one", tallied.harmful))
        for one in some
    ]
    news = [one for one in findings if one["anomaly"] not in {*expected, *NO_ANOMALIES}]
    reasons = [
        *(f"unexplained: {one['explanation']}" for one in unexplained),
        *(f"checker {name} raised {error}" for name, error in checked.raised.items()),
        *(f"broker {one['broker']}, {one['topic']}-{one['partition']}: {one['reason']}" for one in doubts),
    ]
    if gates is not None and gates.lack is not None:
        reasons.append(gates.lack)
    verdict, reason = CLEAN, _clean(statements, findings)
    if news or reasons:
        verdict, reason = (ANOMALY, _line(news[0])) if news else (UNKNOWN, reasons[0])
    return {
        "verdict": verdict,
        "reason": reason,
        "findings": findings,
        "unexplained": unexplained,
        "guarantees": list(checked.guarantees),
        "audit": tallied.as_json(),
        "groups": groups.counts,
        "gates": gates and gates.counts,
        "doubts": [{name: one[name] for name in ("broker", "topic", "partition", "reason")} for one in checked.doubts],
        "checker_errors": dict(checked.raised),
    }


def _clean(statements: Statements, tolerated: Sequence[Mapping[str, Any]]) -> str:
    """Return what a clean round has shown, and which findings it has that are known."""
    groups, gates = statements.groups, statements.gates
    known = Counter(one["anomaly"] for one in tolerated)
    but = f", but for known findings: {', '.join(f'{n} {name}' for name, n in sorted(known.items()))}" if known else ""
    shown = [f"{len(statements.truth.wrongs)} replicas were read whole and give what clients know{but}"]
    if groups.views:
        views = f"{groups.views} views of {groups.keys} offsets of groups"
        shown.append(f"{views} were held against clients, too" if groups.wrongs else f"so do {views}")
    if gates is not None:
        held = gates.counts
        shown.append(f"the gates held {held['held']} exposed outages of {held['partitions']} partitions, and let go")
    return "; ".join(shown)


def _by_checkers(
    truth: Truth,
    names: Mapping[Replica, Mapping[str, Iterable[Symptom]]],
    rows: Mapping[Symptom, Sequence[dict[str, Any]]],
    diagnoses: Mapping[Symptom, Diagnosis],
) -> tuple[dict[Replica, dict[str, list[dict[str, Any]]]], set[Replica]]:
    """Return the checkers' findings on each replica by name, and the replicas where clients can name the nameless."""
    by_name: dict[Replica, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    agreed: set[Replica] = set()
    for symptom, of_symptom in rows.items():
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


def _findings(evidence: RoundEvidence, checked: Checked) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    truth, symptoms = evidence.truth, symptoms_of(evidence.truth)
    rows: dict[Symptom, list[dict[str, Any]]] = defaultdict(list)
    for row in checked.findings:
        symptom = _symptom(Judge.CHECKERS, row)
        # A transaction with records below the log start, whose marker was removed since, is open for no consumer.
        if row["offset"] >= truth.log_starts.get((symptom.broker, symptom.partition), 0):
            rows[symptom].append(row)
    diagnoses = diagnose(evidence, [*symptoms, *rows])
    names: dict[Replica, dict[str, list[Symptom]]] = defaultdict(lambda: defaultdict(list))
    for symptom in symptoms:
        name = diagnoses[symptom].name if symptom in diagnoses else UNEXPLAINED
        names[symptom.broker, symptom.partition][name].append(symptom)
    by_checkers, agreed = _by_checkers(truth, names, rows, diagnoses)
    findings, unexplained = [], []
    for replica in sorted(names.keys() | by_checkers.keys()):
        broker, (topic, partition) = replica
        ours, theirs = names.get(replica, {}), by_checkers.get(replica, {})
        place: dict[str, Any] = {"broker": broker, "topic": topic, "partition": partition}
        for name in sorted((ours.keys() | theirs.keys()) - {UNEXPLAINED, UNEXPLAINED_DIVERGENCE}):
            of_clients, of_checkers = ours.get(name, []), theirs.get(name, [])
            first = of_clients[0] if of_clients else _symptom(Judge.CHECKERS, of_checkers[0])
            text = str(of_checkers[0]["explanation"]) if of_checkers else _words(first.wrong)
            findings.append(
                {
                    "anomaly": name,
                    **place,
                    "count": max(len(of_clients), len(of_checkers)),
                    "found_by": [*([CLIENTS] if of_clients else []), *([CHECKERS] if of_checkers else [])],
                    "explanation": _with(text, diagnoses[first].words if first in diagnoses else ""),
                    "witness": of_checkers[0]["witness"] if of_checkers else vars(first.wrong),
                }
            )
        nameless = [(CLIENTS, _words(symptom.wrong)) for symptom in ours.get(UNEXPLAINED, [])]
        nameless += [(CHECKERS, row["explanation"]) for row in theirs.get(UNEXPLAINED_DIVERGENCE, [])]
        unexplained += [_unexplained(found_by, text, **place) for found_by, text in nameless]
        if not (ours and theirs) and replica not in agreed and not ours.keys() | theirs.keys() <= OF_ONE_JUDGE:
            found_by, others = (CLIENTS, "checkers find") if ours else (CHECKERS, "by what clients know there is")
            what = ", ".join(sorted(ours or theirs))
            unexplained.append(_unexplained(found_by, f"{what}, and {others} nothing wrong with this replica", **place))
    # Offsets that were lost are given to other records.
    wrong_places = {(one["topic"], one["partition"]) for one in findings} | {loss.partition for loss in evidence.losses}
    for guarantee in checked.guarantees:
        for violation in guarantee["violations"]:
            at = _place(violation)
            if (at["topic"], at["partition"]) not in wrong_places:
                text = f"the guarantee {guarantee['guarantee']} is violated: {violation['explanation']}"
                unexplained.append(_unexplained(CHECKERS, text, **at))
    return findings, unexplained


def _named_keys(names: Mapping[str, Iterable[Symptom]]) -> set[str | None]:
    """Return the keys of the symptoms with a name."""
    return {symptom.key for name, symptoms in names.items() if name != UNEXPLAINED for symptom in symptoms}


def _symptom(judge: Judge, finding: Mapping[str, Any]) -> Symptom:
    key = (finding.get("key") or {}).get("text")
    place = (finding["topic"], finding["partition"])
    return Symptom(judge, finding["broker"], place, key, anomaly=finding["anomaly"])


def _unexplained(found_by: str, explanation: str, **place: Any) -> dict[str, Any]:
    return {"found_by": found_by, **place, "explanation": explanation}


def _place(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {name: finding[name] for name in ("broker", "topic", "partition")}


def _words(wrong: Any) -> str:
    at = "" if wrong.offset is None else f" at offset {wrong.offset}"
    return f"{wrong.kind}: key {wrong.key}{at}: here {wrong.here}, by clients {wrong.truth}"


def _with(explanation: str, words: str) -> str:
    return f"{explanation}; {words}" if words else explanation


def _line(finding: Mapping[str, Any]) -> str:
    where = f"broker {finding['broker']}, {finding['topic']}-{finding['partition']}"
    return f"{finding['anomaly']} on {where}: {finding['explanation']}"
