"""The verdict of an audit, from the rows of its checkers: attributed and explained findings, and each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkers.anomalies import FINDERS
from checkers.consistency.doubts import CONTRADICTION
from harness.audit.copy_checks import KEY_STATES, REPLICA_FACTS, VALUES
from harness.audit.explain.advice import ANY_BROKER, with_advice
from harness.audit.explain.attribution import Disputes, attribute, attribute_spans
from harness.audit.explain.knowledge import Knowledge, rows_by_place
from harness.audit.explain.served_records import values_of, with_states
from harness.audit.live.coordination import Leaders, with_coordinators
from harness.judge.finding import by_place
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

    ``target``: as in ``verdict.json``. ``holders``: the brokers of each partition, also of those that were not read.
    ``unknown``: why a partition cannot be called clean. ``broker_findings``: findings by brokers' answers; such a
    finding is dropped where the checkers have a finding at the same place. ``knowledge``: evidence for the attribution.
    ``bootstrap``: an address for commands. ``leaders``: who leads each partition, where that is known.
    """

    target: Mapping[str, Any]
    holders: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    unknown: Mapping[Place, Sequence[str]] = field(default_factory=dict)
    broker_findings: Sequence[Finding] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    bootstrap: str = ANY_BROKER
    leaders: Leaders = field(default_factory=Leaders)


def assemble(
    copies: Copies, rows: Mapping[str, Rows], *, timings_s: Mapping[str, float], context: AuditContext | None = None
) -> Verdict:
    """Return the verdict of an audit, with a scenario for each partition.

    ``notes`` of the verdict: what was left out, and what is unknown.
    """
    rows_of_run = {name: [row for row in table if row.get("run") == copies.run_id] for name, table in rows.items()}
    compared: dict[Place, list[int]] = {}
    for copy in copies.replicas:
        compared.setdefault(copy.place, []).append(copy.broker)
    context = context or AuditContext({"name": "copies", "brokers": sorted({copy.broker for copy in copies.replicas})})
    brokers = {**compared, **context.holders}
    span_findings, undecided_spans = attribute_spans(rows_of_run["unsure"], context.knowledge)
    damaged, doubts, unsure, left_out, facts = map(
        rows_by_place,
        (
            rows_of_run["damaged"],
            rows_of_run["doubts"],
            undecided_spans,
            rows_of_run["left_out"],
            rows_of_run["replicas"],
        ),
    )
    # A replica that contradicts itself is no evidence against others.
    contradicted = damaged.keys() | doubts.keys()
    disagreements = [row for name in FINDERS for row in rows_of_run[name]]
    disputes = Disputes.of(rows_of_run[KEY_STATES], rows_of_run["replicas"], context.knowledge)
    findings = with_states(attribute(disagreements, disputes), disputes, values_of(rows_of_run[VALUES]))
    findings = [finding for finding in findings + span_findings if finding.place not in contradicted]
    identities = {_identity(finding) for finding in findings}
    findings += [finding for finding in context.broker_findings if _identity(finding) not in identities]
    findings.sort(key=lambda finding: (finding.place, finding.broker, finding.offset))
    findings = with_advice(with_coordinators(findings, context.leaders), brokers, context.bootstrap)
    findings_by_place = by_place(findings)
    scenarios = [
        _partition(
            place,
            compared.get(place, []),
            findings_by_place.get(place, []),
            [
                *(row["problem"] for row in damaged.get(place, [])),
                *(
                    f"broker {row['broker']}: {row['reason']}"
                    for row in (*doubts.get(place, []), *unsure.get(place, []))
                ),
                *context.unknown.get(place, ()),
                *map(_left_out_text, left_out.get(place, [])),
                *(f"checker {row['name']} raised {row['reason']}" for row in rows["raised"]),
            ],
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
            Doubt(
                broker=row["broker"],
                topic=row["topic"],
                partition=row["partition"],
                kind=CONTRADICTION,
                reason=row["reason"],
            )
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
    bound = next((one["bound"] for one in facts_by_broker.values()), None)
    earned = f"{len(brokers)} replicas were read to offset {bound} and agree, with themselves too"
    verdict, reason = decide([finding.explanation for finding in findings], unknown, earned)
    return ScenarioVerdict(
        scenario=f"{place[0]}-{place[1]}",
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
