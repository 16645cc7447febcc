"""`harness explore`: options, output and exit codes."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click import BadParameter
from click.testing import CliRunner
from described import described

from harness.cli.explore import explore as command
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, UsageError
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.model_checking.explore import report
from harness.model_checking.explore.cases import COORDINATED, FRESH_COPIES, GATE, ISR_GATE, ClusterCase, cases
from harness.model_checking.explore.random_runs import CONSEQUENCES, ORACLE, CheckerResults, RunStatistics, SweepResult
from harness.model_checking.explore.random_schedules import RandomSchedule
from harness.model_checking.explore.walk import WalkResult, summary, walk
from harness.models.log import redpanda
from harness.models.log.version_rules import rules_of
from harness.models.walk.exhaustive import Explored, Numbered, explore
from harness.models.walk.state_space import ADD, Bound
from harness.models.world import coordination
from harness.models.world.groups import NEW, OLD
from harness.models.world.world import Rules
from harness.schedules.operations.clients import Die
from harness.schedules.operations.operation import Operation
from harness.schedules.schedule import read_schedule
from harness.targets import SIM_KAFKA, SIM_REDPANDA

BOUND_S = 30
WRITES = Bound(writes=2, transactions=0)


STAY, ONE, TWO = map(Die, ("stay", "one", "two"))


def counting(state: int) -> list[tuple[Operation, int]]:
    """Lead from each number to the next ones, and nowhere from 7 on."""
    return [] if state >= 7 else [(STAY, state), (ONE, state + 1), (TWO, state + 2)]


def test_shortest_way_to_each_wrong_state() -> None:
    explored = explore(0, counting, lambda state: ["odd end"] if state == 7 else [], most_states=100)
    assert explored == Explored(states=9, transitions=14, depth=4, wrong={"odd end": (ONE, TWO, TWO, TWO)})


def test_states_with_one_key_are_one() -> None:
    explored = explore(0, counting, lambda _: [], most_states=100, key=lambda state: state % 2)
    assert (explored.states, explored.transitions) == (2, 2)


def test_a_walk_that_is_bounded_says_so() -> None:
    explored = explore(0, counting, lambda _: [], most_states=3)
    assert not explored.is_whole
    assert explored.states == 3


def test_a_walk_that_ends_with_the_first_wrong_state() -> None:
    explored = explore(0, counting, lambda state: ["two"] if state == 2 else [], most_states=100, first_only=True)
    assert (explored.wrong, explored.is_whole) == ({"two": (TWO,)}, False)


def test_equal_things_have_one_number() -> None:
    numbers = Numbered[str](str.lower)
    assert [numbers.number(text) for text in ("a", "b", "A")] == [0, 1, 0]
    assert (numbers[0], numbers[1]) == ("a", "b")


def clusters(target: str, with_: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> list[ClusterCase]:
    """Return the cases of a target that has brokers."""
    return [case for case in cases(target, with_=with_, without=without) if isinstance(case, ClusterCase)]


def test_cases_of_a_target() -> None:
    alone = clusters(SIM_KAFKA)
    together = clusters(SIM_KAFKA, (COORDINATED,), ("late-rpc-ignored",))
    assert not any(case.coordinated for case in alone)
    assert all(case.coordinated and case.delayed for case in together)
    assert len({case.title for case in alone}) == len(alone)
    redpandas = clusters(SIM_REDPANDA, (), ("snapshot-first",))
    assert all(case.coordinated and not case.delayed for case in redpandas)
    assert [case.title for case in redpandas] == [case.title for case in clusters(SIM_REDPANDA)]
    gated = clusters(SIM_KAFKA, (GATE,))
    assert all(case.bound.gate and not case.coordinated for case in gated)
    assert gated[-1].title == "1 key, 1 plain write, 1 transaction, gate, change: unassign, then assign"
    assert all(case.bound.gate and case.coordinated for case in clusters(SIM_KAFKA, (COORDINATED, GATE)))
    assert together[2].title == "1 key, 2 plain writes, 0 transactions, change: add, no outage"
    assert ClusterCase(Bound(writes=1, transactions=2, change=ADD, epoch_bump=True)).title == (
        "1 key, 1 plain write, 2 transactions (v2), change: add"
    )


@pytest.mark.parametrize(
    ("target", "with_", "without", "says"),
    [
        ("sim-kafak", (), (), "unknown simulated target 'sim-kafak'; did you mean sim-kafka"),
        (SIM_KAFKA, ("coordinate",), (), "unknown proposal for sim-kafka 'coordinate'; did you mean coordinated"),
        (SIM_KAFKA, (COORDINATED,), ("never-backwards",), "unknown rule 'never-backwards'; did you mean never"),
        (SIM_KAFKA, (COORDINATED,), ("snapshot-first",), "unknown rule 'snapshot-first'"),
        (
            SIM_KAFKA,
            (GATE,),
            ("never-backward",),
            "--without never-backward: sim-kafka has no such rule: it is one of --with coordinat",
        ),
        (SIM_REDPANDA, (COORDINATED,), (), "unknown proposal for sim-redpanda 'coordinated' .*known: none"),
        (SIM_REDPANDA, (), ("markers-ages",), "unknown rule 'markers-ages'; did you mean markers-age"),
    ],
)
def test_names_that_are_not_known(target: str, with_: tuple[str, ...], without: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cases(target, with_=with_, without=without)


@pytest.mark.parametrize(
    ("case", "most_states", "verdict"),
    [
        (ClusterCase(WRITES), 1000, ANOMALY),
        (ClusterCase(WRITES, coordinated=True), 10_000, CLEAN),
        (ClusterCase(WRITES, coordinated=True), 100, UNKNOWN),
        (ClusterCase(WRITES), 100, UNKNOWN),
    ],
)
def test_clean_only_where_all_was_seen(case: ClusterCase, most_states: int, verdict: str) -> None:
    messages: list[WalkResult] = []
    (walked,) = walk([case], processes=1, most_states=most_states, first_only=False, on_progress=messages.append)
    assert walked.verdict == verdict
    assert messages == [walked]
    assert summary(SIM_KAFKA, (), [walked])["verdict"] == verdict


def test_the_command_tells_the_shortest_way_of_all_cases() -> None:
    ran = CliRunner().invoke(command, ["--target", SIM_KAFKA, "--most-states", "300"], standalone_mode=False)
    assert ran.return_value == EXIT_ANOMALY
    assert (
        "tombstone-divergence in 7 steps: p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"
        in ran.stdout
    )


def test_cases_of_consumer_groups() -> None:
    chosen = [case for case in cases(SIM_KAFKA, with_=(), without=(), groups=True) if isinstance(case, ClusterCase)]
    assert {case.bound.coordinator for case in chosen} == {OLD, NEW}
    assert len({case.title for case in chosen}) == len(chosen)
    assert chosen[0].title == "old coordinator, 1 key, 2 plain writes, 0 transactions, change: no change"
    together = cases(SIM_KAFKA, with_=(COORDINATED,), without=(), groups=True)
    assert all(
        isinstance(case, ClusterCase) and case.coordinated and case.bound.coordinator == NEW for case in together
    )


def test_the_command_tells_what_goes_wrong_for_groups() -> None:
    options = ["--target", SIM_KAFKA, "--groups", "--most-states", "300"]
    ran = CliRunner().invoke(command, options, standalone_mode=False)
    assert ran.return_value == EXIT_ANOMALY
    assert (
        "deleted-offset-back in 7 steps: p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"
        in ran.stdout
    )
    assert "deleted-offset-back-at-reload in 4 steps: p puts K; t puts K; p deletes K; t commits" in ran.stdout
    assert "tombstone-divergence" not in ran.stdout


def test_the_command_tells_json() -> None:
    ran = CliRunner().invoke(
        command, ["--target", SIM_KAFKA, "--most-states", "300", "--format", "json"], standalone_mode=False
    )
    content = json.loads(ran.stdout)
    assert content["verdict"] == ANOMALY
    assert content["cases"][0]["states"] == 274
    assert content["cases"][0]["whole"] is True
    assert content["cases"][1]["whole"] is False


def test_the_page_on_coordinated_compaction_has_each_rule_and_its_meaning() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/explanation/coordinated-compaction.md").read_text(
        encoding="utf-8"
    )
    rules = {**redpanda.RULES, **coordination.RULES}
    for rule in (*coordination.RULES, "free-not-ended", "committed-is-plain"):
        assert f"| `{rule}` | {rules[rule]} |" in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seed", "3"], "--seed takes --runs"),
        (["--spark-master", "local[1]"], "--spark-master takes --runs"),
        (["--runs", "3", "--first"], "--first is for walks: leave out --runs"),
        (["--runs", "3", "--most-states", "9"], "--most-states is for walks: leave out --runs"),
        (["--runs", "3", "--processes", "1"], "--processes is for walks: leave out --runs"),
        (["--runs", "3", "--without", "never-backward"], "one of --with coordinated"),
        (["--runs", "3", "--with", "coordinate"], "did you mean coordinated"),
        (["--with", FRESH_COPIES], "--with fresh-copies is for random runs: give --runs"),
        (["--with", ISR_GATE, "--runs", "3"], "has no random runs: leave out --runs"),
        (["--with", ISR_GATE, "--with", "gate"], "--with gate: it is not modelled under faults"),
        (["--with", ISR_GATE, "--with", COORDINATED], "give only one of them under faults"),
        (["--with", ISR_GATE, "--with", "anew-after-loss"], "isr-gate has this rule"),
        (["--with", ISR_GATE, "--without", "image-aged"], "did you mean image-age"),
        (["--faults", "--without", "image-age"], "unknown rule 'image-age'"),
        (["--faults", "--groups"], "--faults: leave out --groups"),
        (["--faults", "--runs", "3"], "--faults is for walks: leave out --runs"),
        (["--groups", "--with", ISR_GATE], "leave out --with isr-gate"),
        (["--groups", "--target", SIM_REDPANDA], "leave out --target sim-redpanda"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], says: str) -> None:
    ran = CliRunner().invoke(command, ["--target", SIM_KAFKA, *options], standalone_mode=False)
    assert isinstance(ran.exception, UsageError)
    assert says in str(ran.exception)


@pytest.mark.parametrize("options", [["--runs", "0"], ["--seed", "-1"], ["--runs", "many"]])
def test_numbers_that_are_none(options: list[str]) -> None:
    ran = CliRunner().invoke(command, ["--target", SIM_KAFKA, *options], standalone_mode=False)
    assert isinstance(ran.exception, BadParameter)


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        (["--target", SIM_KAFKA], Rules()),
        (["--target", SIM_KAFKA, "--with", COORDINATED], Rules(coordinated=True)),
        (["--target", SIM_KAFKA, "--groups"], Rules(of_groups=True)),
        (["--target", SIM_KAFKA, "--with", GATE], Rules(gate=True)),
        (["--target", SIM_KAFKA, "--with", GATE, "--with", FRESH_COPIES], Rules(gate=True, fresh_copies=True)),
        (["--target", SIM_REDPANDA], Rules(coordinated=True, redpanda=True)),
        (
            ["--target", SIM_REDPANDA, "--without", "snapshot-first"],
            Rules(coordinated=True, redpanda=True, without=frozenset({"snapshot-first"})),
        ),
    ],
)
def test_random_runs_are_drawn_by_the_rules_asked_for(
    options: list[str], rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Rules] = []

    def explore_random_runs(rules: Rules, *_: object) -> SweepResult:
        asked.append(rules)
        return SweepResult(RunStatistics(runs=3, exposed=1), {})

    monkeypatch.setattr(report, "explore_random_runs", explore_random_runs)
    assert CliRunner().invoke(command, [*options, "--runs", "3"], standalone_mode=False).return_value == EXIT_CLEAN
    assert asked == [rules]


def test_random_runs_are_reported_with_their_smallest_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = RandomSchedule(5, Rules(epoch_bump=True), described("t puts K; 2 leaves; t aborts; 2 returns"))
    tally = RunStatistics(runs=1000, exposed=100)
    tally.seeds_by_anomaly["stuck-lso"] = [7, 9]
    asked: list[tuple[Rules, range]] = []

    def explore_random_runs(rules: Rules, seeds: range, *_: object) -> SweepResult:
        asked.append((rules, seeds))
        return SweepResult(tally, {"stuck-lso": way})

    monkeypatch.setattr(report, "explore_random_runs", explore_random_runs)
    options = ["--target", SIM_KAFKA, "--runs", "1000", "--seed", "4", "--with", COORDINATED, "--out", str(tmp_path)]
    ran = CliRunner().invoke(command, [*options, "--format", "json"], standalone_mode=False)
    assert ran.return_value == EXIT_ANOMALY
    assert asked == [(Rules(coordinated=True), range(4, 1004))]
    content = json.loads(ran.stdout)
    assert content["found"]["stuck-lso"] == {
        "runs": 2,
        "per_1000": 2.0,
        "first_seed": 7,
        "smallest": {
            "seed": 5,
            "case": "random run 5, transactions v2",
            "steps": list(map(str, way.steps)),
            "replayable": True,
        },
    }
    assert read_schedule(tmp_path / "stuck-lso.json").operations == way.steps
    ran = CliRunner().invoke(command, options, standalone_mode=False)
    assert "stuck-lso in 4 steps (random run 5, transactions v2)" in ran.stdout
    assert "1,000 runs from seed 4, 100 of them exposed" in ran.stdout


def test_what_goes_wrong_for_groups_is_reported_beside_the_anomalies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules(of_groups=True, version=rules_of("4.4.0"))
    way = RandomSchedule(5, rules, described("t puts K; 2 leaves; t aborts; 2 returns"))
    statistics = RunStatistics(runs=1000, exposed=100)
    statistics.seeds_by_anomaly["stuck-lso"] = [7, 9]
    statistics.seeds_by_consequence["group-frozen"] = [9]
    result = SweepResult(statistics, {"stuck-lso": way, "group-frozen": way})
    monkeypatch.setattr(report, "explore_random_runs", lambda *_: result)
    options = ["--target", SIM_KAFKA, "--groups", "--runs", "1000", "--out", str(tmp_path)]
    ran = CliRunner().invoke(command, [*options, "--format", "json"], standalone_mode=False)
    (consequence,) = json.loads(ran.stdout)["consequences"].values()
    assert (consequence["runs"], consequence["first_seed"]) == (1, 9)
    assert consequence["smallest"]["case"] == "random run 5, transactions v1, new coordinator"
    assert consequence["smallest"]["replayable"] is False
    assert read_schedule(tmp_path / "group-frozen.json").operations == way.steps
    ran = CliRunner().invoke(command, options, standalone_mode=False)
    assert re.search(r"group-frozen +1 +1\.00 +10\.00 +9", ran.stdout)
    assert "group-frozen in 4 steps (random run 5, transactions v1, new coordinator): t puts K" in ran.stdout


def results(findings: list[tuple[str, int, str]], consequences: list[tuple[str, int, str]]) -> CheckerResults:
    def rows(places: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
        return [{"run": run, "broker": broker, "anomaly": name} for run, broker, name in places]

    of_checkers = {"stuck_lso": rows(findings), ORACLE: rows(findings), CONSEQUENCES: rows(consequences)}
    return CheckerResults({str(name): of_rows for name, of_rows in of_checkers.items()}, {})


def test_a_consequence_for_groups_has_an_anomaly_of_the_same_replica() -> None:
    stuck, frozen = ("3", 2, "stuck-lso"), ("3", 2, "group-frozen")
    statistics = RunStatistics()
    statistics.add(10, results([stuck], [frozen, ("4", 1, "deleted-offset-back-at-reload")]))
    assert statistics.seeds_by_consequence == {"group-frozen": [3], "deleted-offset-back-at-reload": [4]}
    assert (statistics.amiss, statistics.verdict) == ({}, ANOMALY)
    statistics.add(10, results([stuck], [("3", 3, "group-frozen")]))
    assert statistics.amiss == {"consequences for groups without an anomaly": ["seed 3, broker 3: group-frozen"]}
    assert statistics.verdict == UNKNOWN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_walks_on_alone(number: signal.Signals) -> None:
    """However the command ends, its workers end."""
    command = [sys.executable, "-m", "harness.cli.main", "explore", "--target", SIM_KAFKA, "--with", COORDINATED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "states" in process.stderr.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.send_signal(number)
        process.wait(BOUND_S)
        process.communicate(timeout=BOUND_S)
    _, alive = psutil.wait_procs(workers, timeout=BOUND_S)
    assert not alive
