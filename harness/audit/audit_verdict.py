"""The verdict of an audit, from the rows of its checkers: attributed and explained findings, and each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkers.anomalies import FINDERS
from checkers.consistency.doubts import CONTRADICTION
from harness.audit.copy_checks import KEY_STATES, REPLICA_FACTS, VALUES
from harness.audit.explain.advice import ANY_BROKER, with_advice
from harness.audit.explain.attribution import Disputes, attribute, attribute_spans
from harness.audit.explain.internal_records import values_of, with_coordinators, with_states
from harness.audit.explain.metadata_evidence import MetadataEvidence, evidence_of_log
from harness.judge.finding import by_place, name_of, rows_by_place
from harness.judge.verdict import Doubt, ScenarioVerdict, Verdict, decide, overall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.audit.copy_checks import Rows
    from harness.broker_files.copies.copies import Copies
    from harness.judge.finding import CheckerRow, Finding, Place

_LEAST_REPLICAS = 2
CANNOT_COMPARE = "removed records cannot be distinguished from records that the other has yet to remove"


@dataclass(frozen=True)
class AuditContext:
    """Facts about the partitions from outside the compared replicas.

    ``target``: as in ``verdict.json``. ``evidence``: for the attribution; a partition whose replicas are listed there
    has a verdict, even if none of them was read. ``unknown``: why a partition cannot be called clean.
    ``broker_findings``: by brokers' answers; dropped where the checkers have a finding at the same place.
    ``bootstrap``: a broker's address, for commands.
    """

    target: Mapping[str, Any]
    evidence: MetadataEvidence = field(default_factory=MetadataEvidence)
    unknown: Mapping[Place, Sequence[str]] = field(default_factory=dict)
    broker_findings: Sequence[Finding] = ()
    bootstrap: str = ANY_BROKER


def context_of_copies(copies: Copies) -> AuditContext:
    """Return the context of copies: from their metadata log, where there is one."""
    cluster = {} if copies.cluster_id is None else {"cluster_id": copies.cluster_id}
    target = {"name": "copies", **cluster, "brokers": sorted({copy.broker for copy in copies.replicas})}
    return AuditContext(target, evidence_of_log(copies.metadata, {copy.place for copy in copies.replicas}))


def assemble(
    copies: Copies, rows: Mapping[str, Rows], *, timings_s: Mapping[str, float], context: AuditContext | None = None
) -> Verdict:
    """Return the verdict of an audit, with a scenario for each partition. ``context``: by default that of copies.

    ``notes`` of the verdict: files and keys that were left out, and missing answers.
    """
    rows_of_run = {name: [row for row in table if row.get("run") == copies.run_id] for name, table in rows.items()}
    compared: dict[Place, list[int]] = {}
    for copy in copies.replicas:
        compared.setdefault(copy.place, []).append(copy.broker)
    context = context or context_of_copies(copies)
    brokers = {**compared, **context.evidence.replicas}
    span_findings, undecided_spans = attribute_spans(rows_of_run["unsure"], context.evidence)
    damaged, doubts, left_out, facts = (
        rows_by_place(rows_of_run[table]) for table in ("damaged", "doubts", "left_out", "replicas")
    )
    unsure = rows_by_place(undecided_spans)
    # A replica that contradicts itself proves nothing about others.
    contradicted = damaged.keys() | doubts.keys()
    disagreements = [row for name in FINDERS for row in rows_of_run[name]]
    disputes = Disputes.of(rows_of_run[KEY_STATES], rows_of_run["replicas"], context.evidence)
    findings = with_states(attribute(disagreements, disputes), disputes, values_of(rows_of_run[VALUES]))
    findings = [finding for finding in findings + span_findings if finding.place not in contradicted]
    identities = {_identity(finding) for finding in findings}
    findings += [finding for finding in context.broker_findings if _identity(finding) not in identities]
    findings.sort(key=lambda finding: (finding.place, finding.broker, finding.offset))
    findings = with_advice(with_coordinators(findings, context.evidence), brokers, context.bootstrap)
    findings_by_place = by_place(findings)

    def reasons_against_clean(place: Place) -> list[str]:
        contradictions = (*doubts.get(place, []), *unsure.get(place, []))
        return [
            *(row["problem"] for row in damaged.get(place, [])),
            *(f"broker {row['broker']}: {row['reason']}" for row in contradictions),
            *context.unknown.get(place, ()),
            *map(_left_out_text, left_out.get(place, [])),
            *(f"checker {row['name']} raised {row['reason']}" for row in rows["raised"]),
        ]

    scenarios = [
        _partition(
            place,
            compared.get(place, []),
            findings_by_place.get(place, []),
            reasons_against_clean(place),
            # The facts of a log that was read in part would mislead.
            [] if place in damaged else facts.get(place, []),
        )
        for place in sorted(brokers)
    ]
    verdict, reason = overall(scenarios, findings, str)
    return Verdict(
        verdict=verdict,
        reason=reason,
        run_id=copies.run_id,
        target=context.target,
        timings_s=timings_s,
        scenarios=tuple(scenarios),
        findings=tuple(findings),
        doubts=tuple(
            Doubt(kind=CONTRADICTION, **{name: row[name] for name in ("broker", "topic", "partition", "reason")})
            for row in rows_of_run["doubts"]
        ),
        checker_errors={row["name"]: row["reason"] for row in rows["raised"]},
        notes=(*copies.notes, *map(_left_out_text, rows_of_run["left_out"])),
    )


def _partition(
    place: Place,
    brokers: Sequence[int],
    findings: Sequence[Finding],
    doubts: Sequence[str],
    facts: Sequence[CheckerRow],
) -> ScenarioVerdict:
    facts_by_broker = {row["broker"]: {name: row[name] for name in REPLICA_FACTS} for row in facts}
    unknown = [*doubts, *_why_incomparable(brokers, facts_by_broker)]
    bound = facts[0]["bound"] if facts else None
    earned = f"{len(brokers)} replicas were read to offset {bound} and agree, with themselves too"
    verdict, reason = decide([finding.explanation for finding in findings], unknown, earned)
    return ScenarioVerdict(
        scenario=name_of(place),
        anomaly=None,
        payload=None,
        topic=place[0],
        partition=place[1],
        verdict=verdict,
        reason=reason,
        exposure={"replicas": [{"broker": broker, **facts_by_broker[broker]} for broker in sorted(facts_by_broker)]},
    )


def _why_incomparable(brokers: Sequence[int], facts_by_broker: Mapping[int, Mapping[str, Any]]) -> list[str]:
    if not brokers:
        return ["no replica was read"]
    if len(brokers) < _LEAST_REPLICAS:
        return [f"there is only the replica of broker {brokers[0]}, and nothing to compare it with"]
    cleaned = [broker for broker, facts in facts_by_broker.items() if not facts["whole_beyond"]]
    if not cleaned:
        return []
    shortest = min(facts_by_broker, key=lambda broker: facts_by_broker[broker]["log_end"])
    end = facts_by_broker[shortest]["log_end"]
    return [
        f"the log of broker {shortest} ends at {end}, and broker {cleaned[0]} has cleaned beyond that: {CANNOT_COMPARE}"
    ]


def _identity(finding: Finding) -> tuple[object, ...]:
    return finding.anomaly, finding.place, finding.broker, finding.offset


def _left_out_text(row: CheckerRow) -> str:
    return f"{row['topic']}-{row['partition']}: {row['keys']} more keys may differ, and were not compared one by one"
