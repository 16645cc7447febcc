"""Shrunk rounds: every remaining step is needed, and a schedule of `harness run` comes of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from described import described
from fakes.progress import FakeProgress
from soaked import ABORTS, COMMITS, KILL, SMALL, START, TOPIC, TWIN, P, T, put

from harness.errors import HarnessError
from harness.schedules.operations import DeleteRecords, Inject, Operation
from harness.schedules.replay import scenario_of, why_not_replayable
from harness.schedules.scenario import Critical
from harness.schedules.schedule import RoundTopic, Schedule, Step, in_order
from harness.soak.draw.plan import APART_S, ROOM_S, Shape, as_round, fitted
from harness.soak.draw.shrink import CONFIRMATIONS, ShrinkStage, shrink, trimmed
from harness.soak.play.rig import find_setup


def a_round(*timed: tuple[float, Operation], finding: str = "") -> Schedule:
    steps = tuple(Step(at_s, operation) for at_s, operation in timed)
    return Schedule(steps, finding, "sim-kafka", plan=SMALL)


@pytest.fixture
def stage(tmp_path: Path) -> ShrinkStage:
    return ShrinkStage(find_setup("sim-kafka", Shape(), FakeProgress()), tmp_path / "stage")


def test_a_round_with_a_finding_shrinks_to_the_steps_that_make_it(stage: ShrinkStage) -> None:
    played = a_round(
        (1, put(P)), (1.2, put(P, "a")), (1.4, put(T, "b")), (1.8, COMMITS), (2, Inject("lossy", 3)), (3, KILL),
        (8, put(P, deletes=True)), (8.2, put(T, "c")), (8.4, ABORTS), (9, DeleteRecords(500, TOPIC)),
        (15, START),
    )  # fmt: skip
    progress: list[tuple[int, int]] = []
    smallest, shown = shrink(stage, played, "tombstone-divergence", lambda *now: progress.append(now))
    assert [(step.at_s, str(step.operation)) for step in smallest.steps] == [
        (APART_S, f"p puts k in {TOPIC}-0"), (2 * APART_S, "kill begins on broker 2"),
        (3 * APART_S, f"p deletes k in {TOPIC}-0"),
    ]  # fmt: skip
    assert (shown, progress[-1][0], smallest.finding) == (CONFIRMATIONS, 3, "tombstone-divergence")
    assert smallest.plan.lasts_s >= 3 * APART_S + ROOM_S
    assert [client.name for client in smallest.plan.clients] == ["p"]
    scenario = scenario_of(smallest)
    assert [*map(str, scenario.before), *map(str, scenario.outage)] == ["plain puts k", "plain deletes k"]


def test_a_schedule_of_explore_shows_its_finding_in_a_round(stage: ShrinkStage) -> None:
    way = described("p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns")
    schedule = as_round(Schedule(in_order(*way), "tombstone-divergence"))
    assert "tombstone-divergence" in stage.places(fitted(schedule, stage.setup.shape, stage.setup.faults), seed=1)


def test_a_round_that_does_not_show_it_again_is_refused(stage: ShrinkStage) -> None:
    with pytest.raises(HarnessError, match="stuck-lso is not found again"):
        shrink(stage, a_round((1, put(P))), "stuck-lso", lambda *_: None)


def test_what_runs_can_replay() -> None:
    scenario = scenario_of(
        a_round((1, put(T)), (3, KILL), (8, ABORTS), (9, put(T, "x")), (10, COMMITS), finding="aborted-to-committed")
    )
    assert [list(map(str, phase)) for phase in (scenario.before, scenario.outage, scenario.late)] == [
        ["tx begins", "tx puts k"], ["tx aborts"], ["tx begins", "tx puts x", "tx commits"],
    ]  # fmt: skip
    assert scenario.critical == (Critical.MARKER,)


@pytest.mark.parametrize(
    "timed",
    [
        [(1, put(T)), (3, Inject("lossy", 2)), (8, ABORTS)],
        [(1, put(T)), (3, KILL), (8, ABORTS), (9, DeleteRecords(1, TOPIC))],
        [(1, put(T)), (2, put(TWIN)), (3, KILL), (8, ABORTS)],
        [(1, put(T)), (3, KILL), (8, START), (9, KILL), (12, ABORTS)],
        [(1, put(T)), (2, ABORTS), (3, KILL)],
    ],
)
def test_what_runs_cannot_replay(timed: list[tuple[float, Operation]]) -> None:
    assert why_not_replayable(a_round(*timed, finding="stuck-lso")) is not None


def test_clients_and_partitions_without_steps_rest() -> None:
    plan = trimmed(a_round((1, put(T)), (3, KILL))).plan
    assert (plan.clients, plan.filled) == ((T,), ((TOPIC, 0),))


def test_topics_behind_the_last_one_of_the_steps_are_left_out() -> None:
    """Those before it stay: which broker leads a partition goes by their number."""
    topics = tuple(RoundTopic(name, 1, {}) for name in ("first", TOPIC, "last"))
    played = replace(a_round((1, put(T))), plan=replace(SMALL, topics=topics))
    assert trimmed(played).plan.topics == topics[:2]
