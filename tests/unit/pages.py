"""Runs for tests of pages: one with every kind of content, and one whose content is all hostile."""

import json
from pathlib import Path
from typing import Any

from literal import History, put, replica, write_run

from harness.json_codec import from_json
from harness.judge.verdict import ANOMALY, CLEAN, Verdict
from harness.report import page as report
from harness.run_folder.store import RunFolder

HOSTILE = "<script>alert(1)</script>\x00\u202e\x1b[31m&\"'"
LONG = "x" * (1 << 20)

MANIFEST: dict[str, Any] = {
    "command": "harness run --target kafka-3.9.2 --seed 7",
    "run_id": "stuck", "target": {"name": "kafka-3.9", "version": "3.9.2"}, "anomaly": "stuck-lso", "nemesis": "kill",
    "client": "librdkafka", "timers": "fast", "seed": 7, "absent_brokers": [2], "brokers": [1, 2, 3],
    "replication_factor": 3, "status": "complete", "failure": None, "runtime": {"name": "local"}, "topology": None,
    "timings_s": {"boot": 1.0}, "topic_settings": {"a": HOSTILE}, "broker_settings": {}, "versions": {}, "jars": {},
    "scenarios": [{"topic": "t", "summary": "It is stuck.", "replicas": {"0": [1, 3, 2]}}],
}  # fmt: skip
FINDING: dict[str, Any] = {
    "anomaly": "stuck-lso", "candidates": [], "broker": 2, "topic": "t", "partition": 0, "offset": 0,
    "key": {"text": "K"}, "producer_id": 5, "effect": "visible", "explanation": f"frozen {HOSTILE}",
    "witness": {"key": HOSTILE},
}  # fmt: skip


def verdict(*findings: dict[str, Any]) -> dict[str, Any]:
    actual = ANOMALY if findings else CLEAN
    scenario = {
        "scenario": "t", "anomaly": "stuck-lso", "payload": "value", "topic": "t", "partitions": [0],
        "verdict": actual, "reason": "it is", "exposure": {"replicas": []},
    }  # fmt: skip
    return {
        "verdict": actual, "reason": f"because {HOSTILE}", "run_id": "stuck", "target": {"name": "kafka-3.9"},
        "timings_s": {}, "scenarios": [scenario], "checker_errors": {},
        "findings": [dict(finding) for finding in findings],
    }  # fmt: skip


def page(
    folder: RunFolder, manifest: dict[str, Any], content: dict[str, Any], drawn: report.Drawn | None = None
) -> str:
    """Return the page of a run with this content of ``verdict.json``."""
    return report.page(folder, manifest, from_json(Verdict, content), drawn)


def write_night(results: Path, name: str, run: str, **more: Any) -> None:
    """Write the summary of a night with one cell, which that run has judged."""
    cell = {"target": "kafka-4.4", "client": "java", "nemesis": "kill", "runtime": "local", "scenario": "stuck-lso"}
    result = {
        "cell": cell, "version": "4.4.0", "expected": "anomaly", "status": "as expected", "why": "so it is",
        "verdicts": ["anomaly"],
        "runs": [run], "flaky": [], **more,
    }  # fmt: skip
    summary = {
        "began_at": "2026-11-22T19:53:15+00:00", "commit": "beef", "command": "harness nightly",
        "cells_as_expected": 1, "strays": [], "cells": [result],
    }  # fmt: skip
    folder = results / name
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))


def hostile_page(folder: Path) -> str:
    """Return the page of a run whose keys, settings, reasons and witnesses would like to be more than text."""
    hostile = History(
        "hostile", wrote=(put(0, HOSTILE),), after=tuple(replica(b, put(0, HOSTILE), put(1, LONG)) for b in (1, 2, 3))
    )
    run = write_run(folder, hostile)
    run.observations_path.write_text("")
    return page(run, MANIFEST, verdict(FINDING))
