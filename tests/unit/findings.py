"""Findings and verdicts for tests: only what a test is about has to be given."""

from typing import Any

from harness.json_codec import from_json
from harness.judge.finding import Finding
from harness.judge.guarantees import GuaranteeResult, Violation
from harness.judge.verdict import Verdict


def finding(**fields: Any) -> Finding:
    """Return a finding from fields of ``verdict.json``."""
    defaults = {
        "anomaly": "tombstone-divergence", "candidates": [], "broker": 2, "topic": "t", "partition": 0, "offset": 5,
        "key": None, "producer_id": None, "effect": "visible", "explanation": "it is so", "witness": {},
    }  # fmt: skip
    return from_json(Finding, {**defaults, **fields})


def verdict(**fields: Any) -> Verdict:
    """Return a verdict from fields of ``verdict.json``."""
    defaults = {
        "schema": 1, "verdict": "clean", "reason": "it is so", "run_id": "r", "target": {"name": "kafka-4.4"},
        "timings_s": {}, "scenarios": [], "findings": [], "doubts": [], "checker_errors": {},
    }  # fmt: skip
    return from_json(Verdict, {**defaults, **fields})


def audited_verdict(*topics: str) -> Verdict:
    """Return the verdict of an audit on partition 0 of each topic, which is clean."""
    shared: dict[str, Any] = {"anomaly": None, "payload": None, "verdict": "clean", "reason": "", "exposure": {}}
    return verdict(scenarios=[{**shared, "scenario": f"{topic}-0", "topic": topic, "partition": 0} for topic in topics])


def violated(guarantee: str, explanation: str) -> GuaranteeResult:
    """Return the result of a guarantee that is violated once, on broker 1."""
    violation = Violation(broker=1, topic="t", partition=0, offset=9, explanation=explanation, witness={}, count=1)
    return GuaranteeResult(guarantee=guarantee, holds=False, reason="", compared=1, violations=(violation,))


def soak_json(*rounds: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the JSON of a soak's verdict, with these fields of it and of its rounds."""
    line = {
        "name": "soak-1", "seed": 7, "verdict": "clean", "reason": "it is so", "operations": 3, "faults": [],
        "findings": {}, "unexplained": 0, "audit": None, "groups": None, "gates": None, "took_s": {},
    }  # fmt: skip
    return {
        "verdict": "anomaly", "reason": "a reason", "target": "sim-kafka", "seed": 7, "minutes": 5.0, "gate": False,
        "folder": "f", "runtime": "auto", "shape": {}, "expected": {}, "drawn": [], "not_drawn": {}, "findings": {},
        "unexplained": 0, "audit": {}, "groups": {}, "gates": {}, "shown": None, "took_s": 12.0,
        "rounds": [{**line, **more} for more in rounds], **fields,
    }  # fmt: skip
