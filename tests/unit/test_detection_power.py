"""The bench of detection power: when a mutant counts as noticed, and when as named; and the page with the results."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from dependable import HEALTHY
from kafka_mutants import AUDIT, LOG, SET_ASIDE, TARGET, judged, read

from harness.schedules.catalog import ALL, scenarios_for
from harness.targets import find_target

STOCK = scenarios_for(ALL, find_target(TARGET).group_protocols)
SCENARIOS = [
    {"scenario": s.name, "topic": s.topic, "partitions": [number], "verdict": "anomaly", "reason": "it is planted"}
    for number, s in enumerate(STOCK)
]
PLANTED = [
    {"anomaly": str(s.anomaly), "candidates": [], "broker": 2, "topic": s.topic, "partition": number}
    for number, s in enumerate(STOCK)
]
OTHER = {**PLANTED[0], "anomaly": "violated-last-value", "broker": 1}


def outcome(exit_code: int, verdict: str, *findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {"verdict": verdict, "findings": list(findings), "scenarios": SCENARIOS, "guarantees": [], **more}
    return {"exit_code": exit_code, "took_s": 1.0, "verdict": content, "errors": ""}


@pytest.mark.parametrize(("detector", "actual", "noticed", "named"), [
    (HEALTHY, outcome(0, "clean"), False, []),
    (HEALTHY, outcome(2, "unknown"), True, []),
    (HEALTHY, outcome(1, "anomaly", OTHER), True, ["violated-last-value"]),
    (HEALTHY, {"exit_code": 255, "took_s": 1.0, "verdict": {}, "errors": "no broker"}, True, []),
    (AUDIT, outcome(0, "clean"), False, []),
    (AUDIT, outcome(1, "anomaly", OTHER), True, ["violated-last-value"]),
    ("kill", outcome(1, "anomaly", *PLANTED), False, []),
    ("kill", outcome(1, "anomaly", *PLANTED, OTHER), True, ["violated-last-value"]),
    ("kill", outcome(1, "anomaly", *PLANTED[1:]), True, []),
    ("kill", outcome(2, "unknown"), True, []),
    ("kill", outcome(0, "clean"), True, []),
], ids=[
    "clean", "unknown", "finding", "no boot", "audit clean", "audit", "as stock", "more", "less", "?", "nothing",
])  # fmt: skip
def test_a_mutant_is_noticed_by_a_difference_from_stock(
    detector: str, actual: dict[str, Any], noticed: bool, named: list[str]  # noqa: FBT001
) -> None:  # fmt: skip
    result = judged(actual, detector)
    assert (result["noticed"], result["named"]) == (noticed, named)


def test_planted_anomalies_that_are_missing_are_logged() -> None:
    assert judged(outcome(1, "anomaly", *PLANTED[1:]), "kill")["missing"] == [SCENARIOS[0]["scenario"]]


def test_the_page_has_the_recorded_results() -> None:
    page = Path(__file__).resolve().parents[2] / "results" / "kafka-mutants.md"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines() if "|" in line]
    (head,) = (row for row in rows if row[:2] == ["Mutant", "Change"])
    full = [row for row in rows if len(row) == len(head)]
    shown = {(row[0].strip("`"), name): cell for row in full for name, cell in zip(head, row, strict=True)}
    equivalent = tomllib.loads(SET_ASIDE.read_text())
    recorded = {(line["mutant"], line["detector"]): line for line in read(LOG)}
    assert recorded, "no result is recorded"
    for place, line in recorded.items():
        named = ", ".join(line["named"])
        unnamed = line["verdict"] if line["noticed"] or line["verdict"] == "rejected" else "not noticed"
        assert shown[place] == ("equivalent" if place[0] in equivalent else named or unnamed), place
