"""Decides a verdict from the checkers' results: ``anomaly``, ``clean`` or ``unknown``, with the reason.

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

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.broker_files.internal_topics.phrases import subject
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.escape import in_sentence
from harness.judge import guarantees
from harness.judge.earned import earn
from harness.judge.group_consequences import group_consequences
from harness.judge.stuck_durations import stuck_durations
from harness.run_folder.store import SCHEMA
from harness.schedules.scenario import ONE_COPY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.judge.protected import ProtectionRecord
    from harness.run_folder.inventory import Difference

ANOMALY, CLEAN, UNKNOWN = "anomaly", "clean", "unknown"
EXIT_CODES = {ANOMALY: EXIT_ANOMALY, CLEAN: EXIT_CLEAN, UNKNOWN: EXIT_UNKNOWN}

NO_FAULT = "none"
"""The only nemesis that takes no broker away, for run folders whose manifest lacks that field."""


@dataclass(frozen=True)
class Results:
    """Results of the checkers for some runs: rows as dictionaries, and exceptions by checker.

    ``guarantees``: None where they were not checked.
    """

    findings: list[dict[str, Any]]
    doubts: list[dict[str, Any]]
    exposure: list[dict[str, Any]]
    raised: dict[str, str]
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    guarantees: list[dict[str, Any]] | None = None


def assemble(
    manifest: dict[str, Any],
    results: Results,
    aftermath: Sequence[dict[str, Any]] = (),
    *,
    missing: Sequence[Difference] = (),
    notes: Sequence[str] = (),
    protection: ProtectionRecord | None = None,
) -> dict[str, Any]:
    """Return the content of ``verdict.json`` (DESIGN, Commands); ``aftermath``: the lines of that file.

    ``protection``: what the gates of the brokers, or the guard, did; None for a run without.

    ``missing``: evidence that the checkers did not read, as it differs from what the run wrote. It forbids ``clean``
    for every scenario that it concerns.
    """
    contradicted = {_replica(doubt) for doubt in results.doubts if doubt["kind"] == "contradiction"}
    trusted = [finding for finding in results.findings if _replica(finding) not in contradicted]
    order = {place: index for index, scenario in enumerate(manifest["scenarios"]) for place in places_of(scenario)}
    by_topic = {scenario["topic"]: index for index, scenario in enumerate(manifest["scenarios"])}

    def place(row: dict[str, Any]) -> tuple[int, int, int, int]:
        index = order.get(_place(row), by_topic.get(row["topic"], 0))
        return index, row["partition"], row["broker"], row["offset"]

    findings = [finding_of(row) for row in sorted(trusted, key=place)]
    failure = manifest.get("failure")
    why_unchecked = (
        "" if results.guarantees is not None
        else results.raised.get(guarantees.CHECKER) or failure or "it was not checked: the run did not go to its end"
    )  # fmt: skip
    unpromised = manifest["target"].get("unpromised", {})
    guarantee_rows = guarantees.guarantee_results(results.guarantees, contradicted, why_unchecked, unpromised)
    scenarios = [
        _scenario(scenario, manifest, results, findings, guarantee_rows, missing, protection)
        for scenario in manifest["scenarios"]
        if scenario["anomaly"] is not None
    ]
    return {
        **overall(scenarios, findings, "{anomaly} on broker {broker}, {topic}: {explanation}".format_map),
        "run_id": manifest["run_id"],
        "command": manifest.get("command"),
        "target": manifest["target"],
        "nemesis": manifest["nemesis"],
        "timings_s": manifest["timings_s"],
        "scenarios": scenarios,
        "findings": findings,
        "guarantees": guarantee_rows,
        "aftermath": stuck_durations(aftermath),
        "doubts": [
            {name: doubt[name] for name in ("broker", "topic", "partition", "kind", "reason")}
            for doubt in results.doubts
        ],
        "checker_errors": results.raised,
        "partial": [{"path": one.path, "problem": one.problem} for one in missing],
        "notes": list(notes),
    }


def add_consequences(verdict: dict[str, Any], group_events: Sequence[dict[str, Any]], absent: Sequence[int]) -> None:
    """Add to findings what was seen of their consequences (`harness.judge.group_consequences`)."""
    seen = group_consequences(group_events, absent)
    for finding in verdict["findings"]:
        if sentences := seen.get((_place(finding), finding["broker"])):
            finding["consequence"] = "; ".join(sentences)


def decide(found: Sequence[str], unknown: Sequence[str], earned: str | None, shortfall: str = "") -> tuple[str, str]:
    """Return the verdict and the reason: on a scenario of a run, or on anything else that is judged as a whole.

    What was ``found`` is an anomaly, whatever else is ``unknown``: that forbids ``clean`` alone. ``earned``: how
    ``clean`` is earned, None with the ``shortfall`` where it is not.
    """
    if found:
        return ANOMALY, found[0]
    if unknown:
        return UNKNOWN, "; ".join(unknown)
    return (CLEAN, earned) if earned else (UNKNOWN, shortfall)


def overall(
    scenarios: Sequence[dict[str, Any]], findings: Sequence[dict[str, Any]], line: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """Return the beginning of every ``verdict.json``; ``line`` describes its first finding."""
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return {"schema": SCHEMA, "verdict": ANOMALY, "reason": f"{line(findings[0])}{more}"}
    verdict = worst([scenario["verdict"] for scenario in scenarios])
    reasons = [f"{one['scenario']}: {one['reason']}" for one in scenarios if one["verdict"] == verdict]
    return {"schema": SCHEMA, "verdict": verdict, "reason": "; ".join(dict.fromkeys(reasons))}


def _scenario(  # noqa: PLR0917
    scenario: dict[str, Any],
    manifest: dict[str, Any],
    results: Results,
    findings: Sequence[dict[str, Any]],
    guarantee_rows: Sequence[dict[str, Any]],
    missing: Sequence[Difference],
    protection: ProtectionRecord | None,
) -> dict[str, Any]:
    topic, places = scenario["topic"], places_of(scenario)
    topics = {one["topic"] for one in manifest["scenarios"]}
    incomplete = [one for one in missing if one.concerns(topic, topics) or one.concerns(manifest["control"], topics)]
    facts = [protection.facts(row) if protection else row for row in results.exposure if _place(row) in places]
    control = [row for row in results.exposure if row["topic"] == manifest["control"]]
    found = [finding["explanation"] for finding in findings if _place(finding) in places]
    doubts = [doubt for doubt in results.doubts if _place(doubt) in places]
    failure = manifest.get("failure")
    reasons = [
        *([f"the run failed: {failure}"] if failure else []),
        *([f"judged by partial evidence: {'; '.join(map(str, incomplete))}"] if incomplete else []),
        *(f"broker {doubt['broker']}: {doubt['reason']}" for doubt in doubts),
        *(f"checker {name} raised {error}" for name, error in results.raised.items()),
        *guarantees.violated_on(
            guarantee_rows, lambda violation: _place(violation) in places or violation["topic"] == manifest["control"]
        ),
    ]
    absent = manifest["absent_brokers"] if manifest.get("takes_away", manifest["nemesis"] != NO_FAULT) else ()
    proof = manifest.get("coordination", {})
    earned_by, shortfall = earn(
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
        earned_by, shortfall = None, f"replicas were not shown to compact together: {', '.join(unproven)} is not active"
    scenario_verdict, reason = decide(found, reasons, earned_by, shortfall)
    return {
        "scenario": scenario["name"],
        "anomaly": scenario["anomaly"],
        "payload": scenario["payload"],
        "topic": topic,
        "partitions": sorted(partition for _, partition in places),
        "verdict": scenario_verdict,
        "reason": reason,
        "exposure": {
            "earned": earned_by,
            "lacking": shortfall,
            "replicas": [{name: row[name] for name in row if name not in {"run", "topic"}} for row in facts],
        },
    }


def worst(verdicts: Sequence[str]) -> str:
    """Return the overall verdict: anomaly > unknown > clean."""
    return next(v for v in (ANOMALY, UNKNOWN, CLEAN) if v in verdicts)


def places_of(scenario: dict[str, Any]) -> set[tuple[str, int]]:
    """Return the partitions of a scenario of the manifest, of which no other scenario has any."""
    return {(scenario["topic"], int(partition)) for partition in scenario["replicas"]}


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _replica(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["broker"]


def finding_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a checker's row in the form of ``verdict.json``.

    The key of a topic that brokers or their tools keep is decoded: ``record``, and its text in the explanation.
    """
    fields = ("anomaly", "candidates", "broker", "topic", "partition", "offset")
    key, explanation = None if row["key"] is None else bytes(row["key"]), row["explanation"]
    about = subject(row["topic"], key)
    if key is not None and about is not None and about.key is not None:
        explanation = explanation.replace(in_sentence(key), f'"{about.text}"')
    return {
        **{name: row[name] for name in fields},
        "key": _key(key),
        **({} if about is None else {"record": about.as_json()}),
        "producer_id": row["producer_id"],
        "effect": row["effect"],
        "explanation": explanation,
        "witness": json.loads(row["witness"]),
        # Runs decide by their clients; audits by what replicas received (`harness.audit.explain.attribution`).
        "decided": True,
    }


def finding_line(finding: dict[str, Any]) -> str:
    """Return a finding of ``verdict.json`` in one line. It names a broker only where the finding is decided."""
    where = f"{finding['topic']}-{finding['partition']}, offset {finding['offset']}"
    names = [name for name in finding["candidates"] if name != finding["anomaly"]]
    others = f" (or {' or '.join(names)})" if names else ""
    # In verdicts that were stored before 0.2, every finding is decided.
    if finding.get("decided", True):
        where = f"broker {finding['broker']}, {where}"
    return f"{finding['anomaly']}{others}: {where}: {finding['explanation']} [{finding['effect']}]"


def _key(key: bytes | None) -> dict[str, str] | None:
    if key is None:
        return None
    try:
        return {"text": key.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}
