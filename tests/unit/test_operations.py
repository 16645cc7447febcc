"""Operations and steps as JSON objects, the line that describes each, and ways that models found as files."""

import json
from pathlib import Path
from typing import Any

import pytest
from described import described

from harness.errors import UsageError
from harness.schedules.catalog import scenarios_by_name
from harness.schedules.operations import ADMIN, CLASSES, ENVIRONMENT, NEMESIS, PLAYER, Begin, Die, Write
from harness.schedules.replay import scenario_of
from harness.schedules.scenario import Critical, Scenario
from harness.schedules.schedule import Schedule, Step, decode, encode, in_order, read_schedule, step_of, write_schedule

EVERY: dict[str, dict[str, Any]] = {
    "p puts k in t-0": {"do": "write", "process": "p", "key": "k", "topic": "t"},
    "p deletes k in t-1": {"do": "write", "process": "p", "key": "k", "deletes": True, "topic": "t", "partition": 1},
    "p puts K": {"do": "write", "process": "p", "key": "K", "value": "v"},
    "i writes K -L": {"do": "write-batch", "process": "i", "keys": ["K", "L"], "tombstones": [1]},
    "t0 begins": {"do": "begin", "process": "t0"},
    "t0 commits": {"do": "end", "process": "t0", "outcome": "commit"},
    "t0 aborts, having written nothing here": {"do": "end-elsewhere", "process": "t0", "outcome": "abort"},
    "t0 begins again, which aborts its transaction": {"do": "restart", "process": "t0"},
    "t0 dies": {"do": "die", "process": "t0"},
    "t0 sends offset 7 of t-0 for g": {
        "do": "send-offset", "process": "t0", "group": "g", "topic": "t", "partition": 0, "offset": 7,
    },
    "p commits offset 7 of t-0 for g": {
        "do": "commit-offset", "process": "p", "group": "g", "topic": "t", "partition": 0, "offset": 7,
    },
    "m joins g (classic)": {"do": "join-group", "process": "m", "group": "g", "protocol": "classic"},
    "m leaves g": {"do": "leave-group", "process": "m", "group": "g"},
    "p visits g of t (classic)": {
        "do": "visit-group", "process": "p", "group": "g", "topic": "t", "protocol": "classic",
    },
    "p deletes group g": {"do": "delete-group", "process": "p", "group": "g"},
    "records in t-0 are deleted but the last 3": {"do": "delete-records", "keeps": 3, "topic": "t"},
    "t is deleted and created again": {"do": "recreate-topic", "topic": "t"},
    "t gets segment.ms=100": {"do": "alter-topic", "topic": "t", "setting": "segment.ms", "value": "100"},
    "3 leads": {"do": "elect-leader", "broker": 3},
    "4 is added": {"do": "add-replica", "broker": 4},
    "2 is unassigned": {"do": "unassign", "broker": 2},
    "2 is assigned again": {"do": "assign-again", "broker": 2},
    "kill begins on broker 2": {"do": "inject", "fault": "kill", "broker": 2},
    "kill ends on broker 2": {"do": "heal", "fault": "kill", "broker": 2},
    "2 leaves": {"do": "inject", "fault": "outage", "broker": 2},
    "2 returns": {"do": "heal", "fault": "outage", "broker": 2},
    "3's image is late": {"do": "inject", "fault": "late-metadata", "broker": 3},
    "relay: broker 2 is exposed to the removal": {"do": "expose", "script": "relay", "broker": 2},
    "2 loses power, and its log from 5 on": {"do": "lose-power", "broker": 2, "offset": 5},
    "1 cleans": {"do": "cleaner-pass", "brokers": [1]},
    "1 cleans and keeps": {"do": "cleaner-pass", "brokers": [1], "keeps": True},
    "1, 3 clean and keep": {"do": "cleaner-pass", "brokers": [1, 3], "keeps": True},
    "time passes": {"do": "time-passes"},
    "rest": {"do": "rest"},
    "producers expire": {"do": "producers-expire"},
    "4 copies a batch": {"do": "copy-batch", "broker": 4},
    "4 joins": {"do": "join-isr", "broker": 4},
    "2 falls out of the ISR": {"do": "leave-isr", "broker": 2},
    "3 reports": {"do": "send-report", "broker": 3},
    "message 2 arrives": {"do": "message-arrives", "number": 2},
    "bounds 1/2 arrive": {"do": "bounds-arrive", "tombstones": 1, "markers": 2},
    "wait until missed records are removed on every replica that stays up": {"do": "until-removed"},
    "wait until every replica is in sync": {"do": "until-in-sync"},
    "snapshot after-rejoin": {"do": "take-snapshot", "name": "after-rejoin"},
}  # fmt: skip
"""JSON objects of operations by the line that describes each."""


@pytest.mark.parametrize("text", EVERY)
def test_an_operation_is_described_in_one_line_and_is_the_same_after_json(text: str) -> None:
    operation = decode(EVERY[text], "a test")
    assert type(operation) is CLASSES[EVERY[text]["do"]]
    assert str(operation) == text
    assert json.loads(json.dumps(encode(operation))) == EVERY[text]


def test_every_class_of_operations_is_tried_and_has_somebody_who_does_it() -> None:
    assert {content["do"] for content in EVERY.values()} == set(CLASSES)
    processes = {decode(content, "a test").process for content in EVERY.values()}
    assert processes - {"p", "t0", "i", "m"} == {ADMIN, NEMESIS, ENVIRONMENT, PLAYER}


def test_fields_with_their_default_values_may_be_written_and_a_step_may_begin_at_once() -> None:
    written = {"do": "write", "process": "p", "topic": "t", "partition": 0, "key": "k", "deletes": False}
    assert decode(written, "a test") == Write("p", "k", topic="t")
    content = {"do": "die", "process": "t0"}
    assert step_of({"at_s": 1.5, **content}, "a test") == Step(1.5, Die("t0"))
    assert step_of(content, "a test") == Step(0.0, Die("t0"))


WRITE = {"at_s": 1.0, "do": "write", "process": "p", "key": "k"}
BATCH = {"do": "write-batch", "process": "i"}
NO_OPERATIONS: tuple[Any, ...] = (None, [], "write", {**WRITE, "do": None})


@pytest.mark.parametrize(("content", "says"), [
    *((content, "is not an operation") for content in NO_OPERATIONS),
    ({**WRITE, "do": "wipe"}, "is not an operation; give one of add-replica, alter-topic"),
    ({**WRITE, "partition": "0"}, "write: missing, unknown, or of a wrong type or value: partition$"),
    ({**WRITE, "partition": True}, "value: partition$"),
    ({**WRITE, "key": None}, "value: key$"),
    ({**WRITE, "more": 1}, "value: more$"),
    ({**WRITE, "at_s": -1.0}, "at_s is not a time: -1.0"),
    ({**WRITE, "at_s": float("nan")}, "at_s is not a time"),
    ({**WRITE, "at_s": "now"}, "at_s is not a time"),
    ({"do": "write", "key": "k"}, "value: process$"),
    ({**BATCH, "keys": "K"}, "value: keys$"),
    ({**BATCH, "keys": ["K", 1]}, "value: keys$"),
    ({"do": "cleaner-pass", "brokers": [True]}, "value: brokers$"),
    ({"do": "cleaner-pass"}, "value: brokers$"),
    ({"do": "end", "process": "t", "outcome": "commits"}, "value: outcome$"),
])  # fmt: skip
def test_a_wrong_step_is_refused(content: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"^step 3: .*{says}"):
        step_of(content, "step 3")


PUBLISHED = Path(__file__).parents[2] / "results" / "schedules"
PASSES = "1 cleans; time passes; 1 cleans; 2 returns"


def schedule(steps: str, anomaly: str = "stuck-lso") -> Schedule:
    return Schedule(in_order(*described(steps)), anomaly, "sim-kafka", "a case")


def shape(scenario: Scenario) -> tuple[list[str], ...]:
    """Return the operations of each phase, without values and without the begin of transactions."""
    phases = (scenario.before, scenario.outage, scenario.late)
    return tuple([str(operation) for operation in phase if not isinstance(operation, Begin)] for phase in phases)


@pytest.mark.parametrize(("like", "steps"), [
    ("tombstone-divergence", "p puts K; 2 leaves; p deletes K"),
    ("aborted-to-committed-delete", "p puts K; t deletes K; 2 leaves; t aborts; t puts good; t commits"),
    ("committed-to-aborted-delete",
     "p puts K; t deletes K; 2 leaves; t commits; 1 cleans; t puts garbage; t aborts"),
    ("stuck-lso", "t puts K; 2 leaves; t commits; p puts K"),
])  # fmt: skip
def test_known_payloads_come_out_of_their_schedules(like: str, steps: str) -> None:
    known = scenarios_by_name()[like]
    made = scenario_of(schedule(f"{steps}; {PASSES}", str(known.anomaly)))
    assert (shape(made), made.critical, made.anomaly) == (shape(known), known.critical, known.anomaly)
    assert "2 leaves" in made.summary


def test_what_a_plain_client_writes_beside_a_transaction() -> None:
    made = scenario_of(schedule(f"p puts K; 2 leaves; t deletes K; p puts L; t commits; {PASSES}"))
    assert made.critical == (Critical.TOMBSTONE,)
    assert list(map(str, made.outage)) == ["tx begins", "tx deletes K", "plain puts L", "tx commits"]
    assert not made.late


@pytest.mark.parametrize(("steps", "outage", "late"), [
    ("t puts K; 2 leaves; t puts L; t commits; t puts M; t aborts",
     ["tx puts L", "tx commits"], ["tx begins", "tx puts M", "tx aborts"]),
    ("p puts K; 2 leaves; p deletes K; wait until missed records are removed on every replica that stays up; p puts L",
     ["plain deletes K"], ["plain puts L"]),
])  # fmt: skip
def test_what_is_written_once_missed_records_are_removed(steps: str, outage: list[str], late: list[str]) -> None:
    made = scenario_of(schedule(f"{steps}; {PASSES}"))
    assert (list(map(str, made.outage)), list(map(str, made.late))) == (outage, late)


@pytest.mark.parametrize(("steps", "says"), [
    ("p puts K; p deletes K", "needs one fault by which a broker leaves, and its end"),
    ("t puts K; 2 leaves; 2 returns; 2 leaves; 2 returns", "needs one fault"),
    ("t puts K; 2 leaves; t commits; 3 leaves; 2 returns; 3 returns", "needs one fault"),
    ("t puts K; 2 leaves; t commits; 2 returns; p puts K",
     "step 5 of this schedule, 'p puts K', cannot be replayed: compaction and clients rest"),
    (f"t puts K; 2 leaves; 4 is added; t commits; {PASSES}", "step 3, '4 is added', is not supported by harness"),
    (f"t puts K; 2 leaves; t commits; {PASSES}; 2 cleans", "compaction and clients rest"),
    ("t puts K; 2 returns; t commits; 2 leaves", "needs one fault"),
    (f"t puts K; 2 lags; t commits; {PASSES}", "step 2, '2 lags', is not supported by harness run"),
    (f"t puts K; u puts K; 2 leaves; t commits; u aborts; {PASSES}", "not t, u"),
    (f"p puts K; 2 leaves; p puts K; {PASSES}", "nothing that can be missed"),
    (f"t puts K; 2 leaves; p puts K; {PASSES}", "nothing that can be missed"),
])  # fmt: skip
def test_what_cannot_be_replayed_is_refused(steps: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scenario_of(schedule(steps))


def test_a_name_that_no_checker_has_is_refused() -> None:
    with pytest.raises(UsageError, match="lost-value is not an anomaly that runs look for: tombstone-divergence"):
        scenario_of(schedule(f"t puts K; 2 leaves; t commits; {PASSES}", "lost-value"))


def test_a_file_gives_what_was_written(tmp_path: Path) -> None:
    written, path = schedule(f"t puts K; 2 leaves; t commits; {PASSES}"), tmp_path / "ways" / "stuck-lso.json"
    write_schedule(path, written)
    assert read_schedule(path) == written
    with pytest.raises(UsageError, match="cannot be written"):
        write_schedule(path / "s.json", written)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_schedule(tmp_path / "none.json")


@pytest.mark.parametrize(("text", "says"), [
    ("{", "is not JSON"),
    ("[]", "not a schedule of this release"),
    (json.dumps({"schema": 2}), "not a schedule of this release"),
    (json.dumps({"schema": 1, "finding": "a"}), "it has no list of steps"),
    (json.dumps({"schema": 1, "steps": [1]}), "step 1: 1 is not an operation; give one of"),
    (json.dumps({"schema": 1, "steps": ["p puts K"]}), "step 1: 'p puts K' is not an operation"),
    (json.dumps({"schema": 1, "steps": [], "finding": 1}), "finding is not a text"),
    (json.dumps({"schema": 1, "steps": [], "plan": {"seed": 1}}), "the plan is wrong"),
])  # fmt: skip
def test_files_that_are_no_schedules(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_schedule(path)


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_published_schedules_can_be_replayed(path: Path) -> None:
    assert scenario_of(read_schedule(path)).critical
