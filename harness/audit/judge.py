"""The verdict of an audit: runs the checkers over replicas whose clients are unknown, and explains the findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkers.anomalies import FINDERS
from checkers.attribution.key_states import disputed_records, key_states
from checkers.consistency import side_files, txnindex_disagreement
from checkers.consistency.wire_answers import with_served_aborts
from checkers.evidence.tables import REPLICA, load_copies
from checkers.reduction.reduce import Reduced, reduce_copies
from checkers.replay.judged import judge
from checkers.replay.unreplicated_tails import without_unreplicated_tails
from harness.audit.explain.advice import ANY_BROKER, with_advice
from harness.audit.explain.attribution import Disputes, attribute, attribute_spans
from harness.audit.explain.knowledge import Knowledge, by_place, place_of
from harness.audit.explain.served_records import read_values, values_of, with_states
from harness.audit.live.coordination import Leaders, with_coordinators
from harness.judge.check import THREADS, dictionaries, each, plan
from harness.judge.verdict import decide, finding_line, overall
from harness.spark.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from checkers.evidence.tables import Evidence
    from checkers.replay.judged import Judged
    from harness.broker_files.copies.copies import Copies

Rows = list[dict[str, Any]]

CHECKS: Mapping[str, Callable[[Judged], DataFrame]] = {name: finder.check for name, finder in FINDERS.items()}

REPLICA_FACTS = ("log_start", "log_end", "high_watermark", "bound", "stable_end", "whole_beyond")
KEY_STATES = "key_states"
VALUES = "values"

CHECKERS: Mapping[str, Callable[[Judged], DataFrame]] = {
    **CHECKS,
    "doubts": side_files.check,
    "unsure": txnindex_disagreement.check,
    "replicas": lambda judged: judged.replicas.select(*REPLICA, *REPLICA_FACTS, "has_transactions"),
    "damaged": lambda judged: judged.evidence.damaged,
}

NO_ROWS: Mapping[str, Rows] = {name: [] for name in (*CHECKERS, KEY_STATES, VALUES, "left_out", "raised")}
"""What the checkers return without any input."""

WORTH_REDUCING_BYTES = 4 << 20
"""Reduction takes some seconds. Without it, each MiB takes about one second to judge, as no expression is compiled."""

_LEAST_REPLICAS = 2
CANNOT_COMPARE = "removed records cannot be distinguished from records that the other has yet to remove"


def judge_copies(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Rows]:
    """Judge copies of any size: small ones whole, larger ones after a reduction.

    Returns the same as `judge_whole`, and the values of disputed records of internal topics.
    """
    if is_big(copies):
        rows = judge_reduced(reduce_copies(spark, copies, spark.sparkContext.defaultParallelism))
    else:
        rows = judge_whole(load_copies(spark, copies))
    return {**rows, VALUES: read_values(copies, rows[KEY_STATES])}


def is_big(copies: Sequence[Copies]) -> bool:
    """Whether copies are reduced before they are judged, by compiled loops."""
    size_bytes = sum(path.stat().st_size for one in copies for copy in one.replicas for path in copy.logs)
    return size_bytes >= WORTH_REDUCING_BYTES


def judge_whole(evidence: Evidence) -> dict[str, Rows]:
    """Judge all data of the copies, as a run folder is judged: for small copies.

    Returns the rows of every checker by its name, and ``replicas``, ``damaged``, ``doubts``, ``unsure``, ``left_out``,
    ``key_states`` (see `checkers.attribution.key_states`) and ``raised``; ``values`` is empty. Rows carry
    ``run``: several audits may be judged in one job. If a checker raises, the others go on; ``raised`` records the
    error (``name``, ``reason``), and forbids ``clean``.
    """
    judged = judge_copied(evidence)
    return _computed(judged, CHECKERS)


def judge_copied(evidence: Evidence) -> Judged:
    """Derive from copies what every checker compares: without unreplicated tails, with the aborts served."""
    return judge(with_served_aborts(without_unreplicated_tails(evidence)))


def judge_reduced(reduced: Reduced) -> dict[str, Rows]:
    """Judge copies after their reduction; returns the same as `judge_whole`."""
    left_out = [
        {"run": run, "topic": topic, "partition": partition, "keys": keys}
        for (run, topic, partition), keys in reduced.left_out.items()
    ]
    rows: dict[str, Rows] = {"raised": []}
    if reduced.evidence is not None:
        judged = judge(reduced.evidence, reduced.replicas)
        rows = _computed(judged, CHECKS)
    return {**NO_ROWS, **rows, **reduced.tables, "left_out": left_out}


def _computed(judged: Judged, checkers: Mapping[str, Callable[[Judged], DataFrame]]) -> dict[str, Rows]:
    planned, unplanned = plan(judged, checkers)
    with threads(judged.replicas.sparkSession, THREADS) as pool:
        rows, raised = each(planned, lambda name: dictionaries(planned[name]), using=pool.map)
    states, without_states = each([KEY_STATES], lambda _: key_state_rows(judged, rows))
    errors = [{"name": name, "reason": reason} for name, reason in {**unplanned, **raised, **without_states}.items()]
    return {**NO_ROWS, **rows, **states, "raised": errors}


def key_state_rows(judged: Judged, rows: Mapping[str, Rows]) -> Rows:
    """Return the state of every disputed key on every replica; rows of `checkers.attribution.key_states`."""
    disputed = disputed_records(row for name in FINDERS for row in rows.get(name, []))
    return dictionaries(key_states(judged, disputed)) if disputed else []


@dataclass(frozen=True)
class AuditContext:
    """Facts about the partitions from outside the compared replicas.

    ``target``: as in ``verdict.json``. ``holders``: the brokers of each partition, also of those that were not read.
    ``unknown``: why a partition cannot be called clean. ``broker_findings``: findings by brokers' answers; such a
    finding is dropped where the checkers have a finding at the same place. ``knowledge``: evidence for the attribution.
    ``bootstrap``: an address for commands. ``leaders``: who leads each partition, where that is known.
    """

    target: Mapping[str, Any]
    holders: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    unknown: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)
    broker_findings: Sequence[dict[str, Any]] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    bootstrap: str = ANY_BROKER
    leaders: Leaders = field(default_factory=Leaders)


def assemble(
    copies: Copies, rows: Mapping[str, Rows], *, timings_s: Mapping[str, float], context: AuditContext | None = None
) -> dict[str, Any]:
    """Return the content of an audit's ``verdict.json``: like that of a run, with a scenario for each partition.

    Adds the fields of `attribute` and `with_advice` to findings, and ``notes``: what was left out, and what is unknown.
    """
    rows_of_run = {name: [row for row in table if row.get("run") == copies.run_id] for name, table in rows.items()}
    compared: dict[tuple[str, int], list[int]] = {}
    for copy in copies.replicas:
        compared.setdefault(copy.place, []).append(copy.broker)
    given = context or AuditContext({"name": "copies", "brokers": sorted({copy.broker for copy in copies.replicas})})
    brokers = {**compared, **given.holders}
    damaged = by_place(rows_of_run["damaged"])
    span_findings, undecided_spans = attribute_spans(rows_of_run["unsure"], given.knowledge)
    doubts, unsure, left_out = map(by_place, (rows_of_run["doubts"], undecided_spans, rows_of_run["left_out"]))
    # A replica that contradicts itself is no evidence against others.
    contradicted = damaged.keys() | doubts.keys()
    disagreements = [row for name in FINDERS for row in rows_of_run[name]]
    disputes = Disputes.of(rows_of_run[KEY_STATES], rows_of_run["replicas"], given.knowledge)
    findings = with_states(attribute(disagreements, disputes), disputes, values_of(rows_of_run[VALUES]))
    findings = [finding for finding in findings + span_findings if place_of(finding) not in contradicted]
    places = {_identity(finding) for finding in findings}
    findings += [finding for finding in given.broker_findings if _identity(finding) not in places]
    findings.sort(key=lambda finding: (finding["topic"], finding["partition"], finding["broker"], finding["offset"]))
    findings = with_advice(with_coordinators(findings, given.leaders), brokers, given.bootstrap)
    facts, findings_by_place = by_place(rows_of_run["replicas"]), by_place(findings)
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
                *given.unknown.get(place, ()),
                *map(_left_out_text, left_out.get(place, [])),
            ],
            [f"checker {row['name']} raised {row['reason']}" for row in rows["raised"]],
            # The facts of a log that was read in part would mislead.
            [] if place in damaged else facts.get(place, []),
        )
        for place in sorted(brokers)
    ]
    return {
        **overall(scenarios, findings, finding_line),
        "run_id": copies.run_id,
        "target": dict(given.target),
        "timings_s": dict(timings_s),
        "scenarios": scenarios,
        "findings": findings,
        "notes": [*copies.notes, *map(_left_out_text, rows_of_run["left_out"])],
        "doubts": [
            {**{name: row[name] for name in ("broker", "topic", "partition", "reason")}, "kind": "contradiction"}
            for row in rows_of_run["doubts"]
        ],
        "checker_errors": {row["name"]: row["reason"] for row in rows["raised"]},
    }


def _partition(  # noqa: PLR0917
    place: tuple[str, int],
    brokers: Sequence[int],
    findings: Sequence[dict[str, Any]],
    doubts: Sequence[str],
    raised: Sequence[str],
    facts: Rows,
) -> dict[str, Any]:
    facts_by_broker = {row["broker"]: {name: row[name] for name in REPLICA_FACTS} for row in facts}
    unknown = [*doubts, *raised, *_why_incomparable(brokers, facts_by_broker)]
    bound = next((one["bound"] for one in facts_by_broker.values()), None)
    earned = f"{len(brokers)} replicas were read to offset {bound} and agree, with themselves too"
    verdict, reason = decide([finding["explanation"] for finding in findings], unknown, earned)
    return {
        "scenario": f"{place[0]}-{place[1]}",
        "anomaly": None,
        "payload": None,
        "topic": place[0],
        "partition": place[1],
        "verdict": verdict,
        "reason": reason,
        "exposure": {"replicas": [{"broker": broker, **facts_by_broker[broker]} for broker in sorted(facts_by_broker)]},
    }


def _why_incomparable(brokers: Sequence[int], facts_by_broker: Mapping[int, dict[str, Any]]) -> list[str]:
    if not brokers:
        return ["no replica was read"]
    if len(brokers) < _LEAST_REPLICAS:
        return [f"there is only the replica of broker {brokers[0]}, and nothing to compare it with"]
    cleaned = [broker for broker, facts in facts_by_broker.items() if not facts["whole_beyond"]]
    if cleaned:
        shortest = min(facts_by_broker, key=lambda broker: facts_by_broker[broker]["log_end"])
        end = facts_by_broker[shortest]["log_end"]
        return [
            (
                f"the log of broker {shortest} ends at {end}, and broker {cleaned[0]} has cleaned beyond that:"
                f" {CANNOT_COMPARE}"
            )
        ]
    return []


def _identity(finding: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(finding[name] for name in ("anomaly", "topic", "partition", "broker", "offset"))


def _left_out_text(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}: {row['keys']} more keys may differ, and were not compared one by one"
