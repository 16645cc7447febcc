"""Rounds of one kind of brokers on another kind: only unsupported operations are left out."""

from dataclasses import replace

import pytest
from described import described
from fakes.progress import FakeProgress
from soaked import KILL, SMALL, START, TOPIC, P, put

from harness.errors import UsageError
from harness.model_checking.explore.walk import OF_GROUPS
from harness.schedules.operations import AlterTopic, CommitOffset, DeleteRecords, Inject, Operation, RecreateTopic, Rest
from harness.schedules.schedule import NO_PLAN, RoundClient, RoundPlan, RoundTopic, Schedule, in_order
from harness.soak.draw.plan import APART_S, ROOM_S, SETTINGS, Shape, as_round, fitted
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


def test_steps_that_simulated_brokers_lack_are_left_out(simulated: Setup) -> None:
    supported = (
        put(P), KILL, START, DeleteRecords(1, TOPIC), RecreateTopic(TOPIC), AlterTopic(TOPIC, "segment.ms", "300"),
    )  # fmt: skip
    others = (AlterTopic(TOPIC, "compression.type", "gzip"), Inject("power-failure", 2), COMMIT_OFFSET)
    steps = fitted(played(*supported, *others), simulated.shape, simulated.faults).steps
    assert [step.operation for step in steps] == [*supported]


def test_settings_and_producers_that_they_lack_are_left_out(simulated: Setup) -> None:
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


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (of_model("t puts K", "2 lags"), "step 2, '2 lags', is not supported by harness soak"),
        (of_model("3 leads"), "step 1, '3 leads', is not supported by harness soak"),
        (of_model("t puts K", plan=OF_GROUPS), "its records belong to __consumer_offsets"),
        (played(Rest()), "step 1, 'rest', is not supported by harness soak"),
    ],
)
def test_operations_that_no_round_has_are_rejected(schedule: Schedule, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        as_round(schedule)
