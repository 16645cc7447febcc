"""Verdicts of checkers on simulated runs: the planted anomaly and nothing more, for every fault, client and timers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from simulated import simulate

from harness.cluster.boot import Equipment
from harness.host.java import find_java
from harness.json_codec import to_json
from harness.judge.check import compute_rows, prepare, results_of
from harness.judge.run_verdict import assemble
from harness.play.begin import begin_manifest
from harness.play.run_plan import PreparedRun
from harness.run_folder.store import COMPLETE, RunFolder
from harness.runtimes.base import PreparedRuntime
from harness.schedules.catalog import SCENARIOS

WRONG: tuple[dict[str, Any], ...] = (
    {"nemesis": "kill"}, {"nemesis": "kill", "client": "java"}, {"nemesis": "kill", "timers": "default"},
    {"nemesis": "kill", "partitions": 2, "brokers": 5, "replication_factor": 5, "absent": 2}, {"nemesis": "pause"},
    {"nemesis": "partition"}, {"nemesis": "join"}, {"nemesis": "relay"},
    {"nemesis": "relay", "client": "java", "timers": "default"},
    {"nemesis": "relay", "partitions": 2, "brokers": 4, "replication_factor": 4}, {"nemesis": "reassigned"},
    {"nemesis": "reassigned", "client": "java"}, {"nemesis": "catch-up"}, {"nemesis": "rolling", "seed": 7},
)  # fmt: skip
"""Of sim-kafka: each shows everything, on the brokers that were down."""
HEALTHY = ("none", "clock-skew", "slow")
RIGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("sim-kafka", {"nemesis": nemesis}) for nemesis in HEALTHY),
    *(("sim-redpanda", {"nemesis": nemesis}) for nemesis in ("kill", "join", "relay", "rolling", "none")),
    ("sim-redpanda", {"nemesis": "pause", "client": "java"}),
)
NOT_MADE = PreparedRuntime({}, lambda _: pytest.fail("no broker is started"))
RUNS = (*(("sim-kafka", options) for options in WRONG), ("sim-kafka-3.9", {"nemesis": "kill"}), *RIGHT)


def name_of(target: str, options: Mapping[str, Any]) -> str:
    return "-".join([target, *(f"{value}" for value in options.values())])


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    top = tmp_path_factory.mktemp("simulated")
    actual: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    for target, options in RUNS:
        name = name_of(target, options)
        actual[name] = _run(top / name, target, options)
    rows, raised = compute_rows(prepare(spark, [folder for folder, _ in actual.values()]))
    by_run = {
        run: {name: [row for row in table if row["run"] == run] for name, table in rows.items()} for run in actual
    }
    return {run: to_json(assemble(actual[run][1], results_of(by_run[run], raised))) for run in actual}


def _run(path: Path, target: str, options: Mapping[str, Any]) -> tuple[RunFolder, dict[str, Any]]:
    run = simulate(path, target, **options)
    equipment = Equipment(run.plan.target, find_java(), "sim", NOT_MADE)
    begun = begin_manifest(run.folder, PreparedRun(run.plan, equipment))
    begun.finish(COMPLETE, {})
    proof = dict.fromkeys(run.plan.system.proof, True)
    return run.folder, {**begun.content, "coordination": proof}


@pytest.mark.parametrize("options", WRONG, ids=lambda options: name_of("", options))
def test_all_is_found_on_brokers_that_were_down(options: dict[str, Any], verdicts: dict[str, dict[str, Any]]) -> None:
    actual = verdicts[name_of("sim-kafka", options)]
    assert {one["scenario"]: one["verdict"] for one in actual["scenarios"]} == {
        one.name: "anomaly" for one in SCENARIOS
    }
    assert {one["broker"] for one in actual["findings"]} == set(range(2, 2 + options.get("absent", 1)))
    topics = {scenario.name: str(scenario.anomaly) for scenario in SCENARIOS}
    assert all(one["anomaly"] == topics[one["topic"]] for one in actual["findings"])


def test_older_versions_are_wrong_in_the_same_way(verdicts: dict[str, dict[str, Any]]) -> None:
    assert len(verdicts[name_of("sim-kafka-3.9", {"nemesis": "kill"})]["findings"]) == len(SCENARIOS)


@pytest.mark.parametrize("name", [name_of(*run) for run in RIGHT])
def test_runs_without_an_anomaly_are_clean_and_guarantees_hold(name: str, verdicts: dict[str, dict[str, Any]]) -> None:
    scenarios = verdicts[name]["scenarios"]
    assert [(one["scenario"], one["reason"]) for one in scenarios if one["verdict"] != "clean"] == []
    actual = {one["guarantee"]: one["holds"] for one in verdicts[name]["guarantees"]}
    assert not [guarantee for guarantee, holds in actual.items() if holds is False]
    assert [actual[one] for one in ("last-value", "order", "offsets")] == [True] * 3
