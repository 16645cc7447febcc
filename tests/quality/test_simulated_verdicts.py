"""What checkers make of simulated runs: what was planted and nothing else, whatever the fault, client and timers.

All runs are judged in one job, as checkers are keyed by run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from simulated import simulate

from harness.cluster.boot import Equipment
from harness.host.java import find_java
from harness.judge import verdict
from harness.judge.check import prepare, run_checkers
from harness.judge.verdict import Results
from harness.play.begin import begin_manifest
from harness.play.run_plan import PreparedRun
from harness.run_folder.store import COMPLETE
from harness.runtimes.base import Ready
from harness.schedules.catalog import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.run_folder.store import RunFolder

WRONG: tuple[dict[str, Any], ...] = (
    {"nemesis": "kill"},
    {"nemesis": "kill", "client": "java"},
    {"nemesis": "kill", "timers": "default"},
    {"nemesis": "kill", "partitions": 2, "brokers": 5, "replication_factor": 5, "absent": 2},
    {"nemesis": "pause"},
    {"nemesis": "partition"},
    {"nemesis": "join"},
    {"nemesis": "relay"},
    {"nemesis": "relay", "client": "java", "timers": "default"},
    {"nemesis": "relay", "partitions": 2, "brokers": 4, "replication_factor": 4},
    {"nemesis": "reassigned"},
    {"nemesis": "reassigned", "client": "java"},
    {"nemesis": "catch-up"},
    {"nemesis": "rolling", "seed": 7},
)
"""Of sim-kafka: each shows everything, on the brokers that were away."""
HEALTHY = ("none", "clock-skew", "slow")
RIGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("sim-kafka", {"nemesis": nemesis}) for nemesis in HEALTHY),
    *(("sim-redpanda", {"nemesis": nemesis}) for nemesis in ("kill", "join", "relay", "rolling", "none")),
    *(("sim-cloud-topics", {"nemesis": nemesis}) for nemesis in ("kill", "join", "relay", "none")),
    ("sim-redpanda", {"nemesis": "pause", "client": "java"}),
    ("sim-cloud-topics", {"nemesis": "partition"}),
)
NOT_MADE = Ready({}, lambda _: pytest.fail("no broker is started"))
RUNS = (*(("sim-kafka", options) for options in WRONG), ("sim-kafka-3.9", {"nemesis": "kill"}), *RIGHT)


def name_of(target: str, options: Mapping[str, Any]) -> str:
    return "-".join([target, *(f"{value}" for value in options.values())])


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the verdict of every run, by its name."""
    top = tmp_path_factory.mktemp("simulated")
    actual: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    for target, options in RUNS:
        name = name_of(target, options)
        actual[name] = _run(top / name, target, options)
    results = run_checkers(prepare(spark, [folder for folder, _ in actual.values()]))
    shares = _by_run(results)
    return {name: verdict.assemble(content, shares[name]) for name, (_, content) in actual.items()}


def _run(path: Path, target: str, options: Mapping[str, Any]) -> tuple[RunFolder, dict[str, Any]]:
    run = simulate(path, target, **options)
    equipment = Equipment(run.plan.target, find_java(), "sim", NOT_MADE)
    begun = begin_manifest(run.folder, PreparedRun(run.plan, equipment))
    begun.finish(COMPLETE, {})
    proof = dict.fromkeys(run.plan.system.proof, True)
    return run.folder, {**begun.content, "coordination": proof}


def _by_run(results: Results) -> defaultdict[str, Results]:
    shares: defaultdict[str, Results] = defaultdict(lambda: Results([], [], [], dict(results.raised), guarantees=[]))
    for field in fields(Results):
        for row in getattr(results, field.name) if field.name != "raised" else ():
            getattr(shares[row["run"]], field.name).append(row)
    return shares


@pytest.mark.parametrize("options", WRONG, ids=lambda options: name_of("", options))
def test_everything_is_found_on_who_was_away(options: dict[str, Any], verdicts: dict[str, dict[str, Any]]) -> None:
    actual = verdicts[name_of("sim-kafka", options)]
    assert {one["scenario"]: one["verdict"] for one in actual["scenarios"]} == {
        one.name: "anomaly" for one in SCENARIOS
    }
    assert {one["broker"] for one in actual["findings"]} == set(range(2, 2 + options.get("absent", 1)))
    topics = {scenario.name: str(scenario.anomaly) for scenario in SCENARIOS}
    assert all(one["anomaly"] == topics[one["topic"]] for one in actual["findings"])


def test_older_versions_are_wrong_in_the_same_way(verdicts: dict[str, dict[str, Any]]) -> None:
    assert len(verdicts[name_of("sim-kafka-3.9", {"nemesis": "kill"})]["findings"]) == len(SCENARIOS)


@pytest.mark.parametrize(
    ("target", "options"), RIGHT, ids=lambda one: one if isinstance(one, str) else name_of("", one)
)
def test_what_has_nothing_wrong_is_clean(
    target: str, options: dict[str, Any], verdicts: dict[str, dict[str, Any]]
) -> None:
    actual = verdicts[name_of(target, options)]
    assert {
        one["scenario"]: (one["verdict"], one["reason"]) for one in actual["scenarios"] if one["verdict"] != "clean"
    } == {}


@pytest.mark.parametrize("name", [name_of(*run) for run in RIGHT])
def test_guarantees_hold_where_nothing_is_wrong(name: str, verdicts: dict[str, dict[str, Any]]) -> None:
    actual = {one["guarantee"]: one["holds"] for one in verdicts[name]["guarantees"]}
    assert not [guarantee for guarantee, holds in actual.items() if holds is False]
    assert [actual[one] for one in ("last-value", "order", "offsets")] == [True] * 3
