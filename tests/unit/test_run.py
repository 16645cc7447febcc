"""From options to a run: names, numbers, whose setting wins, and the schedule with the order of operations."""

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run, run_schedule, runtime_of
from harness.schedules.catalog import CONTROL, SERVED, all_scenarios
from harness.schedules.replay import scenarios_of
from harness.schedules.schedule import read_schedule, write_schedule
from harness.schedules.timers import FAST
from harness.targets.settings import parse_settings
from nemesis import SCRIPTS


def options(anomaly: str = "stuck-lso", **more: Any) -> RunOptions:
    return RunOptions("kafka-4.4", anomaly, **more)


def test_every_run_has_its_control_and_several_anomalies_are_looked_for_in_one_outage() -> None:
    assert [s.name for s in plan_run(options()).scenarios] == ["stuck-lso", "control"]
    assert plan_run(options("all")).scenarios == (*(s for s in all_scenarios() if s.anomaly != SERVED), CONTROL)
    names = [scenario.name for scenario in plan_run(options("stuck-lso,committed-to-aborted")).scenarios]
    assert names == ["committed-to-aborted-value", "committed-to-aborted-delete", "stuck-lso", "control"]


@pytest.mark.parametrize("names", ["stuck-lso,", "stuck", "stuck-lso,none", ""])
def test_an_anomaly_that_nobody_knows_is_named(names: str) -> None:
    with pytest.raises(UsageError, match=f"unknown anomaly '{names.rpartition(',')[2]}'"):
        plan_run(options(names))


def test_a_control_has_no_replica_on_an_absent_broker() -> None:
    made = plan_run(options(brokers=5, replication_factor=4, partitions=2, absent=2))
    assert made.replicas == {
        ("stuck-lso", 0): (1, 4, 2, 3), ("stuck-lso", 1): (4, 5, 2, 3),
        ("control", 0): (1, 4, 5), ("control", 1): (4, 5, 1),
    }  # fmt: skip


def test_the_nemesis_adds_what_it_needs_to_the_timers() -> None:
    made = plan_run(options(nemesis="join"))
    assert made.topic_settings == FAST.topic
    assert made.broker_settings == {**FAST.broker, "replica.fetch.max.bytes": "32768"}


@pytest.mark.parametrize("nemesis", SCRIPTS)
def test_the_user_wins(nemesis: str) -> None:
    of_nemesis = dict.fromkeys(SCRIPTS[nemesis].broker_settings, "1")
    chosen = {"replica.lag.time.max.ms": "2000", **of_nemesis}
    shape: dict[str, Any] = {"brokers": 5, "replication_factor": 5, "absent": 2}  # every nemesis fits there
    made = plan_run(options(nemesis=nemesis, topic_settings={"segment.ms": "9"}, broker_settings=chosen, **shape))
    assert made.topic_settings == {**FAST.topic, "segment.ms": "9"}
    assert made.broker_settings == {**FAST.broker, **chosen}


def test_brokers_with_the_gate_are_local_ones() -> None:
    assert runtime_of(RunOptions("kafka-4.4", "all", gate=True)) == "local"
    assert runtime_of(RunOptions("kafka-4.4", "all")) == "auto"


def test_a_seed_is_taken_or_made_up() -> None:
    assert plan_run(options(seed=0)).seed == 0
    assert plan_run(options()).seed != plan_run(options()).seed


def test_settings_are_distinguished_by_their_scope() -> None:
    pairs = ("topic.segment.ms=5", "broker.log.cleaner.backoff.ms = 7", "topic.x=a=b")
    assert parse_settings(pairs) == ({"segment.ms": "5", "x": "a=b"}, {"log.cleaner.backoff.ms": "7"})


def test_a_setting_has_one_value() -> None:
    assert parse_settings(("topic.segment.ms=5", "topic.segment.ms= 5")) == ({"segment.ms": "5"}, {})
    with pytest.raises(UsageError, match=r"--set 'topic\.segment\.ms=6': topic\.segment\.ms is '5' already"):
        parse_settings(("topic.segment.ms=5", "broker.segment.ms=6", "topic.segment.ms=6"))


@pytest.mark.parametrize("pair", ["topic.segment.ms", "segment.ms=5", "client.x=5", "topic.=5", "=5", ""])
def test_settings_without_a_scope_or_a_value_are_refused(pair: str) -> None:
    with pytest.raises(UsageError, match=r"give topic\.NAME=VALUE or broker\.NAME=VALUE"):
        parse_settings((pair,))


IN_SYNC = "wait until every replica is in sync"
REMOVED = "wait until missed records are removed on every replica that stays up"


def described(nemesis: str, absent: int = 1, anomaly: str = "stuck-lso") -> list[str]:
    plan = plan_run(options(anomaly, nemesis=nemesis, absent=absent))
    return list(map(str, run_schedule(plan).operations))


def test_a_run_is_one_fixed_schedule() -> None:
    assert described("kill") == [
        "stuck-lso.tx puts K", "control.plain puts D", "control.tx puts K", IN_SYNC, "kill begins on broker 2",
        "stuck-lso.tx commits", "stuck-lso.plain puts K", "control.plain deletes D", "control.tx commits",
        "control.plain puts K", REMOVED, IN_SYNC, "snapshot before-return", "kill ends on broker 2", IN_SYNC,
        "snapshot after-rejoin",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "operations"),
    [
        ({"nemesis": "kill", "anomaly": "aborted-to-committed"},
         [REMOVED, "aborted-to-committed.tx puts good", "aborted-to-committed.tx commits"]),
        ({"nemesis": "pause", "absent": 2}, ["pause begins on broker 2", "pause begins on broker 3"]),
        ({"nemesis": "relay"}, ["relay: broker 2 is exposed to the removal", "snapshot before-return"]),
    ],
    ids=["late transactions", "brokers that leave together", "two acts"],
)  # fmt: skip
def test_operations_in_a_row(chosen: dict[str, Any], operations: list[str]) -> None:
    assert "\n".join(operations) in "\n".join(described(**chosen))


@pytest.mark.parametrize("anomaly", ["stuck-lso", "all", "groups"])
def test_the_schedule_of_a_run_can_be_replayed(tmp_path: Path, anomaly: str) -> None:
    path = tmp_path / "schedule.json"
    plan = plan_run(options(anomaly))
    write_schedule(path, run_schedule(plan))
    replayed = scenarios_of(read_schedule(path))
    for scenario, played in zip(replayed, plan.scenarios[:-1], strict=True):
        assert (scenario.name, scenario.anomaly, scenario.kind) == (played.name, played.anomaly, played.kind)
        assert scenario.critical == played.critical
        for phase in ("before", "outage", "late"):
            texts = [str(operation).partition(" ")[2] for operation in getattr(scenario, phase)]
            expected = [str(operation).partition(" ")[2] for operation in getattr(played, phase)]
            assert [text for text in texts if text != "begins"] == expected
