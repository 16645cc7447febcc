"""Ways that models found, as files and as what real clients do."""

import json
from pathlib import Path

import pytest
from described import described

from harness.errors import UsageError
from harness.schedules.catalog import scenarios_by_name
from harness.schedules.operations import Begin
from harness.schedules.replay import scenario_of
from harness.schedules.scenario import Critical, Scenario
from harness.schedules.schedule import Schedule, in_order, read_schedule, write_schedule

PUBLISHED = Path(__file__).parents[2] / "results" / "schedules"
PASSES = "1 cleans; time passes; 1 cleans; 2 returns"


def schedule(steps: str, anomaly: str = "stuck-lso") -> Schedule:
    return Schedule(in_order(*described(steps)), anomaly, "sim-kafka", "a case")


def shape(scenario: Scenario) -> tuple[list[str], ...]:
    """Return the operations of each phase, without values and without the begin of transactions."""
    phases = (scenario.before, scenario.outage, scenario.late)
    return tuple([str(operation) for operation in phase if not isinstance(operation, Begin)] for phase in phases)


@pytest.mark.parametrize(
    ("like", "steps"),
    [
        ("tombstone-divergence", "p puts K; 2 leaves; p deletes K"),
        ("aborted-to-committed-delete", "p puts K; t deletes K; 2 leaves; t aborts; t puts good; t commits"),
        ("committed-to-aborted-delete",
         "p puts K; t deletes K; 2 leaves; t commits; 1 cleans; t puts garbage; t aborts"),
        ("stuck-lso", "t puts K; 2 leaves; t commits; p puts K"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("p puts K; p deletes K", "needs one fault by which a broker leaves, and its end"),
        ("t puts K; 2 leaves; 2 returns; 2 leaves; 2 returns", "needs one fault"),
        ("t puts K; 2 leaves; t commits; 2 returns; p puts K",
         "step 5 of this schedule, 'p puts K', cannot be replayed: compaction and clients rest"),
        (f"t puts K; 2 leaves; 4 is added; t commits; {PASSES}", "step 3, '4 is added', is not supported by harness"),
        (f"t puts K; 2 leaves; t commits; {PASSES}; 2 cleans", "compaction and clients rest"),
        ("t puts K; 2 returns; t commits; 2 leaves", "needs one fault"),
        (f"t puts K; 2 lags; t commits; {PASSES}", "step 2, '2 lags', is not supported by harness run"),
        (f"t puts K; u puts K; 2 leaves; t commits; u aborts; {PASSES}", "not t, u"),
        (f"p puts K; 2 leaves; p puts K; {PASSES}", "nothing that can be missed"),
        (f"t puts K; 2 leaves; p puts K; {PASSES}", "nothing that can be missed"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "not a schedule of this release"),
        (json.dumps({"schema": 2}), "not a schedule of this release"),
        (json.dumps({"schema": 1, "finding": "a"}), "it has no list of steps"),
        (json.dumps({"schema": 1, "steps": [1]}), "step 1: 1 is not an operation; give one of"),
        (json.dumps({"schema": 1, "steps": ["p puts K"]}), "step 1: 'p puts K' is not an operation"),
        (json.dumps({"schema": 1, "steps": [], "finding": 1}), "finding is not a text"),
        (json.dumps({"schema": 1, "steps": [], "plan": {"seed": 1}}), "the plan is wrong"),
    ],
)
def test_files_that_are_no_schedules(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_schedule(path)


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_published_schedules_can_be_replayed(path: Path) -> None:
    assert scenario_of(read_schedule(path)).critical
