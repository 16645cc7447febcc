"""Rounds of one kind of brokers on another kind, and shrunk ones: every remaining step is needed and supported."""

from dataclasses import replace
from pathlib import Path

import pytest
from described import described
from fakes.progress import FakeProgress
from soaked import ABORTS, COMMITS, KILL, SMALL, START, TOPIC, TWIN, P, T, put

from harness.errors import HarnessError, UsageError
from harness.model_checking.explore.walk import OF_GROUPS
from harness.schedules.operations import AlterTopic, CommitOffset, DeleteRecords, Inject, Operation, RecreateTopic, Rest
from harness.schedules.replay import scenario_of, why_not_replayable
from harness.schedules.scenario import Critical
from harness.schedules.schedule import NO_PLAN, RoundClient, RoundPlan, RoundTopic, Schedule, Step, in_order
from harness.soak.draw.plan import APART_S, ROOM_S, SETTINGS, Shape, as_round, fitted
from harness.soak.draw.shrink import CONFIRMATIONS, ShrinkStage, shrink, trimmed
from harness.soak.play.rig import IMAGE_SETTINGS, MAX_IMAGE_AGE_MS, Setup, find_setup

OF_REAL_ONES = {"cleanup.policy": "compact,delete", "compression.type": "lz4", "segment.ms": "100"}
COMMIT_OFFSET = CommitOffset("groups", "g", TOPIC, 0, 3)


@pytest.fixture(scope="module")
def simulated() -> Setup:
    return find_setup("sim-kafka", Shape(), FakeProgress())


def played(*operations: Operation, settings: dict[str, str] | None = None) -> Schedule:
    clients = (P, RoundClient("i", "java", is_idempotent=True))
    plan = replace(SMALL, topics=(RoundTopic(TOPIC, 1, settings or {}),), clients=clients)
    return Schedule(in_order(*operations), target="kafka-4.4", plan=plan)


def test_steps_settings_and_producers_that_simulated_brokers_lack_are_left_out(simulated: Setup) -> None:
    supported = (
        put(P), KILL, START, DeleteRecords(1, TOPIC), RecreateTopic(TOPIC), AlterTopic(TOPIC, "segment.ms", "300"),
    )  # fmt: skip
    others = (AlterTopic(TOPIC, "compression.type", "gzip"), Inject("power-failure", 2), COMMIT_OFFSET)
    steps = fitted(played(*supported, *others), simulated.shape, simulated.faults).steps
    assert [step.operation for step in steps] == [*supported]
    plan = fitted(played(settings=OF_REAL_ONES), simulated.shape, simulated.faults).plan
    assert [topic.settings for topic in plan.topics] == [{"segment.ms": "100"}]
    assert [client.is_idempotent for client in plan.clients] == [False, False]


def test_real_topics_are_compacted_as_simulated_ones_always_are(simulated: Setup) -> None:
    shape = replace(simulated.shape, settings=frozenset(SETTINGS), is_real=True)
    for settings, policy in (({}, "compact"), (OF_REAL_ONES, "compact,delete")):
        (topic,) = fitted(played(settings=settings), shape, simulated.faults).plan.topics
        assert topic.settings == {**settings, "cleanup.policy": policy}
    steps = fitted(played(COMMIT_OFFSET), shape, simulated.faults).steps
    assert [step.operation for step in steps] == [COMMIT_OFFSET]


def test_gates_go_by_metadata_that_are_younger_than_every_retention() -> None:
    retentions_ms = [int(text) for text in SETTINGS["delete.retention.ms"] if text is not None]
    assert 2 * int(IMAGE_SETTINGS["metadata.max.idle.interval.ms"]) <= MAX_IMAGE_AGE_MS < min(retentions_ms)


def of_model(*steps: str, plan: RoundPlan = NO_PLAN) -> Schedule:
    return Schedule(in_order(*described(*steps)), "stuck-lso", "sim-kafka", plan=plan)


def test_a_schedule_of_explore_is_a_round_with_time_for_cleaners() -> None:
    schedule = as_round(of_model("t puts K; 2 leaves; p puts K; t commits; 1 cleans; time passes; 2 returns"))
    assert [(step.at_s / APART_S, str(step.operation)) for step in schedule.steps] == [
        (1, "t puts K in schedule-0"), (2, "kill begins on broker 2"), (3, "p puts K in schedule-0"),
        (4, "t commits"), (7, "kill ends on broker 2"),
    ]  # fmt: skip
    ids = [(client.name, client.transactional_id) for client in schedule.plan.clients]
    assert ids == [("p", None), ("t", "schedule-t")]
    assert schedule.plan.lasts_s == 7 * APART_S + ROOM_S
    assert as_round(schedule) == schedule


@pytest.mark.parametrize(("schedule", "reason"), [
    (of_model("t puts K", "2 lags"), "step 2, '2 lags', is not supported by harness soak"),
    (of_model("3 leads"), "step 1, '3 leads', is not supported by harness soak"),
    (of_model("t puts K", plan=OF_GROUPS), "its records belong to __consumer_offsets"),
    (played(Rest()), "step 1, 'rest', is not supported by harness soak"),
])  # fmt: skip
def test_operations_that_no_round_has_are_rejected(schedule: Schedule, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        as_round(schedule)


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


def test_a_schedule_of_explore_shows_its_finding_in_a_round_and_one_without_it_is_refused(stage: ShrinkStage) -> None:
    way = described("p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns")
    schedule = as_round(Schedule(in_order(*way), "tombstone-divergence"))
    assert "tombstone-divergence" in stage.places(fitted(schedule, stage.setup.shape, stage.setup.faults), seed=1)
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


@pytest.mark.parametrize("timed", [
    [(1, put(T)), (3, Inject("lossy", 2)), (8, ABORTS)],
    [(1, put(T)), (3, KILL), (8, ABORTS), (9, DeleteRecords(1, TOPIC))],
    [(1, put(T)), (2, put(TWIN)), (3, KILL), (8, ABORTS)],
    [(1, put(T)), (3, KILL), (8, START), (9, KILL), (12, ABORTS)],
    [(1, put(T)), (2, ABORTS), (3, KILL)],
])  # fmt: skip
def test_what_runs_cannot_replay(timed: list[tuple[float, Operation]]) -> None:
    assert why_not_replayable(a_round(*timed, finding="stuck-lso")) is not None


def test_clients_and_partitions_without_steps_rest_and_topics_behind_the_last_one_are_left_out() -> None:
    plan = trimmed(a_round((1, put(T)), (3, KILL))).plan
    assert (plan.clients, plan.filled) == ((T,), ((TOPIC, 0),))
    # Topics before it stay: which broker leads a partition goes by their number.
    topics = tuple(RoundTopic(name, 1, {}) for name in ("first", TOPIC, "last"))
    played = replace(a_round((1, put(T))), plan=replace(SMALL, topics=topics))
    assert trimmed(played).plan.topics == topics[:2]
