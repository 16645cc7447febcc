"""The schedule of a run: the order of its operations, and its file."""

from pathlib import Path

import pytest

from harness.play.options import RunOptions
from harness.play.run_plan import plan_run, run_schedule
from harness.schedules.replay import scenarios_of
from harness.schedules.schedule import read_schedule, write_schedule

PHASES = ("before", "outage", "late")
BEFORE = ("stuck-lso.tx puts K", "control.plain puts D", "control.tx puts K", "wait until every replica is in sync")
MISSED = ("stuck-lso.tx commits", "stuck-lso.plain puts K", "control.plain deletes D", "control.tx commits")


def described(nemesis: str, absent: int = 1, anomaly: str = "stuck-lso") -> list[str]:
    options = RunOptions("kafka-4.4", anomaly, nemesis=nemesis, absent=absent)
    return list(map(str, run_schedule(plan_run(options)).operations))


def test_a_run_is_one_fixed_schedule() -> None:
    operations = described("kill")
    assert [line for line in operations if not line.endswith((" puts K", " puts D"))] == [
        "wait until every replica is in sync",
        "kill begins on broker 2",
        "stuck-lso.tx commits",
        "control.plain deletes D",
        "control.tx commits",
        "wait until missed records are removed on every replica that stays up",
        "wait until every replica is in sync",
        "snapshot before-return",
        "kill ends on broker 2",
        "wait until every replica is in sync",
        "snapshot after-rejoin",
    ]
    assert operations[: len(BEFORE)] == list(BEFORE)
    assert operations[5 : 5 + len(MISSED)] == list(MISSED)


def test_late_transactions_come_once_records_are_removed() -> None:
    operations = described("kill", anomaly="aborted-to-committed")
    removed = operations.index("wait until missed records are removed on every replica that stays up")
    assert operations[removed + 1 : removed + 3] == [
        "aborted-to-committed.tx puts good",
        "aborted-to-committed.tx commits",
    ]


def test_brokers_that_leave_together_are_operations_in_a_row() -> None:
    operations = described("pause", absent=2)
    first = operations.index("pause begins on broker 2")
    assert operations[first + 1] == "pause begins on broker 3"


def test_a_script_with_two_acts_exposes_the_replicas_before_the_snapshot() -> None:
    operations = described("relay")
    exposed = operations.index("relay: broker 2 is exposed to the removal")
    assert operations[exposed + 1] == "snapshot before-return"


@pytest.mark.parametrize("anomaly", ["stuck-lso", "all", "groups"])
def test_the_schedule_of_a_run_can_be_replayed(tmp_path: Path, anomaly: str) -> None:
    path = tmp_path / "schedule.json"
    plan = plan_run(RunOptions("kafka-4.4", anomaly))
    write_schedule(path, run_schedule(plan))
    replayed = scenarios_of(read_schedule(path))
    for scenario, played in zip(replayed, plan.scenarios[:-1], strict=True):
        assert (scenario.name, scenario.anomaly, scenario.kind) == (played.name, played.anomaly, played.kind)
        assert scenario.critical == played.critical
        for phase in PHASES:
            texts = [str(operation).partition(" ")[2] for operation in getattr(scenario, phase)]
            expected = [str(operation).partition(" ")[2] for operation in getattr(played, phase)]
            assert [text for text in texts if text != "begins"] == expected
