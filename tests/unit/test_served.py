"""Runs that are judged by what clients are served: hand-written histories, and a run on simulated brokers."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from simulated import simulate

from harness.judge.check import check_folder, judge_run
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.run_folder.store import RunFolder

OPEN = "open"
WRITES = (("K", "v1", 0), ("S", "older", 3), ("S", "newer", 4))
"""Key, value and offset; offset 1 is written in a transaction, 2 is its marker."""
EARLIER = (0, 3, 4)
HEALTHY = (0, 4)


def history(
    end: str | None, polls: tuple[tuple[int, ...], ...], *, key: str = "K", value: str | None = "v2", last: str = "S"
) -> str:
    """Return the lines of a run in which ``t`` writes a key at offset 1, and each poll delivers these offsets."""
    keys = {1: key, **{offset: written for written, _, offset in WRITES}, 4: last}
    events: list[dict[str, Any]] = []

    def add(f: str, *, kind: str = "ok", **more: Any) -> None:
        common = {"f": f, "op": len(events) // 2, "part": "payload", "topic": "T", "partition": 0, "process": "p"}
        events.extend({"type": at, **common, **more} for at in ("invoke", kind))

    def produce(written: str, content: str | None, offset: int, **more: Any) -> None:
        add("produce", key=written, tombstone=content is None, offset=offset, **more)
        del events[-2]["offset"]

    produce(*WRITES[0])
    produce(key, value, 1, transactional_id="t", txn=1)
    if end != OPEN:
        add(end or "abort", kind="ok" if end else "info", transactional_id="t", txn=1, topic=None, partition=None)
    produce(*WRITES[1])
    produce(last, *WRITES[2][1:])
    for offsets in polls:
        records = [{"offset": offset, "key": keys.get(offset, "?"), "value": "v"} for offset in offsets]
        add("poll", broker=1, part="reader", records=records, position=5)
        del events[-2]["records"]
    lines = ({"index": n, "time_ms": n, **event} for n, event in enumerate(events))
    return "".join(json.dumps({name: v for name, v in line.items() if v is not None}) + "\n" for line in lines)


MANIFEST: dict[str, Any] = {
    "schema": 1, "run_id": "r", "status": "complete", "failure": None, "command": None, "nemesis": "none",
    "target": {"name": "own-x-00000000", "version": "1", "note": "", "status": "your own"},
    "absent_brokers": [], "takes_away": False, "control": "control", "timings_s": {"clean": 60.0},
    "topic_settings": {"max.compaction.lag.ms": "1", "delete.retention.ms": "1", "producer.id.expiration.ms": "1"},
    "scenarios": [
        {"name": "T", "anomaly": "served", "payload": "value", "topic": "T", "replicas": {"0": [1]},
         "critical": ["superseded record"]},
    ],
}  # fmt: skip

ABORTED, LOST = ("uncommitted-delivered", 1), ("committed-lost", 0)
CASES: dict[str, tuple[str, str, set[tuple[str, int]], str]] = {
    "a healthy system": (history("abort", (EARLIER, HEALTHY)), "clean", set(), "superseded record"),
    "an aborted record is delivered":
        (history("abort", (EARLIER, (0, 1, 4)), key="poison"), "anomaly", {ABORTED}, "t/1"),
    "an aborted record replaces a committed value":
        (history("abort", (EARLIER, (1, 4))), "anomaly", {ABORTED, LOST}, "ends with the record at offset 1"),
    "an aborted delete removes a committed value":
        (history("abort", (EARLIER, (4,)), value=None), "anomaly", {LOST}, "no record"),
    "a committed delete": (history("commit", (EARLIER, (1, 4)), value=None), "clean", set(), "superseded record"),
    "a committed value is lost":
        (history("commit", (EARLIER, (0, 4))), "anomaly", {("committed-lost", 1)}, "the record at offset 0"),
    "compaction was not seen": (history("abort", (EARLIER, EARLIER)), "unknown", set(), "compaction was not seen"),
    "an open transaction": (history(OPEN, (EARLIER, (0,))), "unknown", set(), "no replica shows it"),
    "a broker has ended an open transaction, and a later record is delivered":
        (history(OPEN, (EARLIER, (3, 4)), key="x", last="K"), "clean", set(), "superseded record"),
    "a record of an open transaction is delivered":
        (history(OPEN, (EARLIER, (1, 4))), "anomaly", {ABORTED, LOST}, "of transaction t/1, which is open"),
    "an unknown outcome": (history(None, (EARLIER, (0, 1, 4)), key="x"), "unknown", set(), "no client knows"),
    "an unknown outcome, and the transaction may be open":
        (history(None, (EARLIER, (0,)), key="x"), "unknown", set(), "no client knows"),
    "a record of nobody": (history("abort", (EARLIER, (0, 4, 7))), "unknown", set(), "no client is known to have"),
    "nothing is delivered":
        (history("abort", (EARLIER, ())), "anomaly", {LOST, ("committed-lost", 4)}, "ends with no record"),
    "no poll": (history("abort", ()), "unknown", set(), "nothing is known"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_clients_are_served_is_judged_by_their_history(name: str, spark: SparkSession, tmp_path: Path) -> None:
    lines, expected, findings, says = CASES[name]
    folder = RunFolder(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    folder.history_path.write_text(lines)
    verdict = judge_run(check_folder(spark, folder), folder, MANIFEST)
    assert (verdict.verdict, {(f.anomaly, f.offset) for f in verdict.findings}) == (expected, findings)
    assert says in " ".join([verdict.reason, *(finding.explanation for finding in verdict.findings)])
    assert verdict.notes == ("the target own-x-00000000 is your own",)


def test_a_run_on_simulated_brokers_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", "sim-kafka", "served")
    scenarios = [
        {"name": s.name, "anomaly": s.anomaly, "payload": s.payload, "topic": s.topic, "critical": [*s.critical],
         "replicas": {"0": [1]}}
        for s in run.plan.scenarios
    ]  # fmt: skip
    manifest = {**MANIFEST, "scenarios": scenarios, "control": scenarios[0]["name"]}
    run.folder.manifest_path.write_text(json.dumps(manifest))
    verdict = judge_run(check_folder(spark, run.folder), run.folder, manifest)
    assert [(s.scenario, s.verdict) for s in verdict.scenarios] == [(s.name, "clean") for s in run.plan.scenarios]
    assert len(verdict.scenarios) == 5


def test_a_served_run_has_no_absent_broker_and_no_control() -> None:
    plan = plan_run(RunOptions("kafka-4.4", "served"))
    assert (plan.placement.absent, plan.nemesis.name) == ((), "none")
    assert {scenario.anomaly for scenario in plan.scenarios} == {"served"}
