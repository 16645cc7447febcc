"""Judges copies of replicas whose clients are unknown: the checkers, and the verdict with its findings and partitions.

Copies come from disks (``harness audit disk``), or were read from a cluster (`harness.audit.live.compare`).
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from checkers.anomalies import FINDERS
from checkers.attribution.blame import disputed_records, key_states
from checkers.consistency import side_files
from checkers.consistency.doubts import CONTRADICTION
from checkers.consistency.side_files import with_served_aborts
from checkers.evidence.tables import REPLICA, Evidence, load_copies
from checkers.finding import HANGING_TRANSACTION, LISTED, first_rows
from checkers.reduction.reduce import Reduced, reduce_copies
from checkers.replay.batch_outcomes import without_unreplicated_tails
from checkers.replay.judged import Judged, judge
from harness.audit.cleaning import uncleaned_notes
from harness.audit.explain.advice import Shell, with_advice
from harness.audit.explain.attribution import Disputes, attribute, attribute_spans
from harness.audit.explain.impact import with_cause, with_impact
from harness.audit.explain.internal_records import read_values, values_of, with_coordinator, with_states
from harness.audit.explain.metadata_evidence import MetadataEvidence, evidence_of_log
from harness.audit.in_flight import without_in_flight
from harness.broker_files.copies.copies import Copies, find_copies
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.check import THREADS, collected, each, plan
from harness.judge.finding import CheckerRow, Finding, Place, by_place, name_of, place_of
from harness.judge.progress import Progress
from harness.judge.sessions import CHECKS
from harness.judge.verdict import UNKNOWN, Doubt, ScenarioVerdict, UnknownReason, Verdict, decide, overall
from harness.run_folder.store import AUDIT_RUN, new_run_id
from harness.schedules.catalog import Anomaly
from harness.spark.background import start_compilation
from harness.spark.jobs import failures_reported, stages_reported, threads
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of

Rows: TypeAlias = Sequence[CheckerRow]
Checker: TypeAlias = Callable[[Judged], DataFrame]

REPLICA_FACTS = ("log_start", "log_end", "high_watermark", "bound", "stable_end", "whole_beyond")
KEY_STATES = "key_states"
VALUES = "values"

CHECKERS: Mapping[str, Checker] = {
    **{name: finder.check for name, finder in FINDERS.items()},
    "doubts": lambda judged: side_files.compare(judged.evidence, judged.replicas, judged.opened, judged.beliefs),
    "unsure": lambda judged: side_files.compare_spans(judged.evidence.aborts, judged.evidence.epochs, judged.replicas),
    "replicas": lambda judged: judged.replicas.select(*REPLICA, *REPLICA_FACTS, "has_transactions"),
    "damaged": lambda judged: judged.evidence.damaged,
}

NO_ROWS: Mapping[str, Rows] = dict.fromkeys((*CHECKERS, KEY_STATES, VALUES, "left_out", "raised"), ())
"""The rows of all checkers without any input."""

WORTH_REDUCING_BYTES = 4 << 20
"""Reduction takes some seconds. Without it, each MiB takes about one second to judge, as no expression is compiled."""
NOT_LOOKED_UP = "not-looked-up"
PARTIAL: Final = frozenset({NOT_LOOKED_UP, "changing", "limited"})
"""Reasons why a partition's differences were not all judged."""
CANNOT_COMPARE = "removed records cannot be distinguished from records that the other has yet to remove"


def judge_copies(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Rows]:
    """Judge copies of any size: small copies completely, larger ones after a reduction.

    Returns the same as `judge_whole`, with ``values`` of records of internal topics. Raises as `failures_reported`.
    """
    with failures_reported():
        if is_big(copies):
            rows = judge_reduced(reduce_copies(spark, copies, spark.sparkContext.defaultParallelism))
        else:
            rows = judge_whole(load_copies(spark, copies))
    return {**rows, VALUES: read_values(copies, rows[KEY_STATES])}


def is_big(copies: Sequence[Copies]) -> bool:
    """Return True for copies that are reduced, by compiled loops, before they are judged."""
    # Only a reduction reads copies that executors store.
    replicas = [copy for run in copies for copy in run.replicas]
    size_bytes = sum(path.stat().st_size for copy in replicas for path in copy.logs)
    return size_bytes >= WORTH_REDUCING_BYTES or any(copy.stored for copy in replicas)


def judge_whole(evidence: Evidence) -> dict[str, Rows]:
    """Judge all data of the copies, as a run folder is judged: for small copies.

    Returns the rows of every checker by its name, and ``replicas``, ``damaged``, ``doubts``, ``unsure``, ``left_out``,
    ``key_states`` (see `checkers.attribution.blame.key_states`) and ``raised``; ``values`` is empty. Rows have
    ``run``: several audits may be judged in one job. If a checker raises, the others continue; ``raised`` records the
    error (``name``, ``reason``), and forbids ``clean``.
    """
    return _computed(judge_copied(evidence), CHECKERS)


def judge_copied(evidence: Evidence) -> Judged:
    """Derive from copies what every checker compares: without unreplicated tails, with the aborts served."""
    return judge(with_served_aborts(without_unreplicated_tails(evidence)))


def judge_reduced(reduced: Reduced) -> dict[str, Rows]:
    """Judge copies after their reduction; returns the same as `judge_whole`."""
    names = ("run", "topic", "partition", "keys")
    left_out = [dict(zip(names, (*place, keys), strict=True)) for place, keys in reduced.left_out.items()]
    rows: Mapping[str, Rows] = {}
    if reduced.evidence is not None:
        first = {name: partial(lambda check, judged: first_rows(check(judged)), CHECKERS[name]) for name in FINDERS}
        rows = _computed(judge(reduced.evidence, reduced.replicas), first)
    return {**NO_ROWS, **rows, **reduced.tables, "left_out": left_out}


def _computed(judged: Judged, checkers: Mapping[str, Checker]) -> dict[str, Rows]:
    planned, unplanned = plan(judged, checkers)
    with threads(judged.replicas.sparkSession, THREADS) as pool:
        rows, raised = each(planned, lambda name: collected(planned[name], name), using=pool.map)
    states, without_states = each([KEY_STATES], lambda _: key_state_rows(judged, rows))
    errors = [{"name": name, "reason": reason} for name, reason in {**unplanned, **raised, **without_states}.items()]
    return {**NO_ROWS, **rows, **states, "raised": errors}


def key_state_rows(judged: Judged, rows: Mapping[str, Rows]) -> Rows:
    """Return the state of every disputed key on every replica; rows of `checkers.attribution.blame.key_states`."""
    disputed = disputed_records(row for name in FINDERS for row in rows.get(name, []))
    return collected(key_states(judged, disputed), KEY_STATES) if disputed else []


def shell_of(copies: Copies) -> Shell:
    """Return the facts for the commands about copies: from their metadata log, where there is one."""
    metadata = copies.metadata
    own = None if metadata is None else {topic: metadata.settings.get(topic, {}) for topic in metadata.topics}
    return Shell(own_settings=own)


def assemble(
    copies: Copies,
    rows: Mapping[str, Rows],
    *,
    timings_s: Mapping[str, float],
    target: Mapping[str, Any] | None = None,
    evidence: MetadataEvidence | None = None,
    unknown: Mapping[Place, Sequence[UnknownReason]] | None = None,
    broker_findings: Sequence[Finding] = (),
    shell: Shell | None = None,
) -> Verdict:
    """Return the verdict of an audit, with a scenario for each partition.

    ``evidence``: for the attribution; a partition whose replicas are listed there has a verdict, even if none of them
    was read. ``unknown``: why a partition cannot be called clean. ``broker_findings``: by brokers' answers; dropped
    where the checkers have a finding at the same place. ``shell``: for commands. The defaults of ``target``,
    ``evidence`` and ``shell`` are those of copies, by their metadata log. ``notes`` of the verdict: files and keys that
    were left out, and missing answers.
    """
    rows_of_run = {name: [row for row in table if row.get("run") == copies.run_id] for name, table in rows.items()}
    compared: dict[Place, list[int]] = {}
    for copy in copies.replicas:
        compared.setdefault(copy.place, []).append(copy.broker)
    if target is None:
        cluster = {} if copies.cluster_id is None else {"cluster_id": copies.cluster_id}
        target = {"name": "copies", **cluster, "brokers": sorted({copy.broker for copy in copies.replicas})}
    evidence = evidence or evidence_of_log(copies.metadata, compared.keys())
    brokers = {**compared, **evidence.replicas}
    span_findings, undecided_spans = attribute_spans(rows_of_run["unsure"], evidence)
    damaged, doubts, left_out, facts = (
        by_place(rows_of_run[table]) for table in ("damaged", "doubts", "left_out", "replicas")
    )
    unsure = by_place(undecided_spans)
    # A replica that contradicts itself proves nothing about others.
    contradicted = damaged.keys() | doubts.keys()
    disagreements = [row for name in FINDERS for row in rows_of_run[name]]
    disputes = Disputes.of(rows_of_run[KEY_STATES], rows_of_run["replicas"], evidence)
    values = values_of(rows_of_run[VALUES])
    findings = [with_states(finding, disputes, values) for finding in attribute(disagreements, disputes)]
    findings = [finding for finding in findings + span_findings if finding.place not in contradicted]
    findings = [_undecided_if_unread(f, compared.get(f.place, ()), evidence.replicas.get(f.place)) for f in findings]
    identities = {_identity(finding) for finding in findings}
    findings += [finding for finding in broker_findings if _identity(finding) not in identities]
    findings.sort(key=lambda finding: (finding.place, finding.broker, finding.offset))
    partly = {place for place, whys in (unknown or {}).items() if any(why.cause in PARTIAL for why in whys)}
    not_compared = brokers.keys() if rows["raised"] else partly | left_out.keys()
    findings, unlisted = _listed(findings, disagreements, not_compared)
    for explain in (with_coordinator, with_impact, with_cause):
        findings = [explain(finding, evidence) for finding in findings]
    findings = with_advice(findings, brokers, shell or shell_of(copies))
    findings_by_place = by_place(findings)

    def scenario(place: Place) -> ScenarioVerdict:
        # The facts of a log that was read in part would mislead.
        rows_here = [] if place in damaged else facts.get(place, [])
        facts_here = {row["broker"]: {name: row[name] for name in REPLICA_FACTS} for row in rows_here}
        brokers_here = compared.get(place, [])
        reasons = [
            *(UnknownReason("damaged", row["problem"]) for row in damaged.get(place, [])),
            *(UnknownReason("contradiction", _of_broker(row)) for row in doubts.get(place, [])),
            *(UnknownReason("unsure", _of_broker(row)) for row in unsure.get(place, [])),
            *(unknown or {}).get(place, ()),
            *(UnknownReason("too-many-keys", _left_out_text(row)) for row in left_out.get(place, [])),
            *(UnknownReason("checker-error", f"checker {r['name']} raised {r['reason']}") for r in rows["raised"]),
            *(UnknownReason("not-comparable", text) for text in _why_incomparable(brokers_here, facts_here)),
        ]
        bound = rows_here[0]["bound"] if rows_here else None
        read = f"{len(brokers_here)} replicas were read to offset {bound}"
        earned = f"{read} and agree with each other and with their own index files"
        explanations = [finding.explanation for finding in findings_by_place.get(place, [])]
        verdict, reason = decide(explanations, [why.text for why in reasons], earned)
        return ScenarioVerdict(
            scenario=name_of(place),
            anomaly=None,
            payload=None,
            topic=place[0],
            partition=place[1],
            verdict=verdict,
            reason=reason,
            exposure={"replicas": [{"broker": broker, **facts_here[broker]} for broker in sorted(facts_here)]},
            causes=tuple(dict.fromkeys(why.cause for why in reasons)) if verdict == UNKNOWN else None,
        )

    scenarios = tuple(map(scenario, sorted(brokers)))
    verdict, reason = overall(scenarios, findings, str)
    diverged = {finding.topic for finding in findings}
    ids = {topic: topic_id for topic, topic_id in copies.topic_ids.items() if topic in diverged}
    return Verdict(
        verdict=verdict,
        reason=reason,
        run_id=copies.run_id,
        target={**target, **({"topic_ids": ids} if ids else {})},
        timings_s=timings_s,
        scenarios=scenarios,
        findings=tuple(findings),
        doubts=tuple(
            Doubt(kind=CONTRADICTION, **{name: row[name] for name in ("broker", "topic", "partition", "reason")})
            for row in rows_of_run["doubts"]
        ),
        checker_errors={row["name"]: row["reason"] for row in rows["raised"]},
        notes=(*copies.notes, *map(_left_out_text, rows_of_run["left_out"]), *unlisted),
    )


def _listed(
    findings: Sequence[Finding], rows: Rows, not_compared: Collection[Place]
) -> tuple[list[Finding], list[str]]:
    """Return the first findings of each partition, `LISTED` at most, and a sentence for each partition with more.

    Commands and repairs copy from a replica that listed findings call right. A replica is not right if an unlisted
    finding accuses it, or if an uncollected row is about it. No replica is right if such a finding is undecided, if
    such a row is about a replica that no decided finding accuses, or if differences were not compared.
    ``rows``: of the checkers; ``total`` and ``described`` as `first_rows` adds them.
    """
    uncollected, described = Counter[Place](), defaultdict[Place, set[int]](set)
    tables = {(place_of(row), row["anomaly"], row["total"], (*row["described"],)) for row in rows if "total" in row}
    for place, _, total, brokers in tables:
        if total > LISTED:
            uncollected[place] += total - LISTED
            described[place] |= {*brokers}
    listed, sentences = [], []
    for place, here in by_place(findings).items():
        first, rest = here[:LISTED], here[LISTED:]
        accused = {finding.broker for finding in here if finding.decided}
        is_known = place not in not_compared and described[place] <= accused and all(f.decided for f in rest)
        wrong = described[place] | {finding.broker for finding in rest}
        if wrong or not is_known:
            rights = [tuple(b for b in finding.right or () if is_known and b not in wrong) for finding in first]
            first = [replace(finding, right=right) for finding, right in zip(first, rights, strict=True)]
        listed += first
        if more := len(here) - len(first) + uncollected[place]:
            sentences.append(f"{name_of(place)}: the first {len(first)} findings are listed, and {more:,} more are not")
    return listed, sentences


def _why_incomparable(brokers: Sequence[int], facts_by_broker: Mapping[int, Mapping[str, Any]]) -> list[str]:
    if not brokers:
        return ["no replica was read"]
    if len(brokers) == 1:
        return [f"there is only the replica of broker {brokers[0]}, and nothing to compare it with"]
    cleaned = [broker for broker, facts in facts_by_broker.items() if not facts["whole_beyond"]]
    if not cleaned:
        return []
    shortest = min(facts_by_broker, key=lambda broker: facts_by_broker[broker]["log_end"])
    end = facts_by_broker[shortest]["log_end"]
    if facts_by_broker[cleaned[0]]["log_end"] == end:
        # Only a replica of a running cluster that was not read to its end.
        return [f"broker {cleaned[0]} was read to offset {end} only: {CANNOT_COMPARE}"]
    return [
        f"the log of broker {shortest} ends at {end}, and broker {cleaned[0]} has cleaned beyond that: {CANNOT_COMPARE}"
    ]


def _undecided_if_unread(finding: Finding, compared: Sequence[int], assigned: Sequence[int] | None) -> Finding:
    """Return a hanging transaction as undecided where a replica that was not read may have ended it.

    ``assigned``: the brokers of all replicas; None if they are unknown.
    """
    is_whole = assigned is not None and {*assigned} <= {*compared}
    if is_whole or finding.anomaly != HANGING_TRANSACTION:
        return finding
    names = (str(Anomaly.STUCK_LSO), HANGING_TRANSACTION)
    return replace(finding, anomaly=names[0], candidates=names, decided=False)


def _identity(finding: Finding) -> tuple[object, ...]:
    return finding.anomaly, finding.place, finding.broker, finding.offset


def _of_broker(row: CheckerRow) -> str:
    return f"broker {row['broker']}: {row['reason']}"


def _left_out_text(row: CheckerRow) -> str:
    return f"{row['topic']}-{row['partition']}: {row['keys']} more keys may differ, and were not compared one by one"


def audit_disk(
    brokers: Mapping[int, Sequence[Path]], topics: Sequence[str], progress: Progress, spark: SparkOptions
) -> Verdict:
    """Return the verdict on the topics' replicas in these folders, by broker.

    Raises `UsageError` as `find_copies` and `session_of` do.
    """
    run_id = f"{AUDIT_RUN}{new_run_id()}"
    copies = find_copies(brokers, topics, run_id)
    java = find_java()
    if is_big([copies]):
        start_compilation()
    with Workspace(run_id, Path.cwd()) as workspace:
        progress.stage("start Spark")
        # Executors need the local folders at the same path.
        folders = [copy.folder for copy in copies.replicas if isinstance(copy.folder, Path)]
        with session_of(workspace, java, spark, folders, CHECKS) as session:
            progress.stage(f"check {len(copies.replicas)} replicas")
            started_s = time.monotonic()
            with stages_reported(session, progress.tasks):
                rows = judge_copies(session, [copies])
            copies = replace(copies, notes=(*copies.notes, *uncleaned_notes(copies, rows["replicas"])))
            rows, unclear = without_in_flight(copies, rows)
            return assemble(copies, rows, timings_s={"check": round(time.monotonic() - started_s, 3)}, unknown=unclear)
