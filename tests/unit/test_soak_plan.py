"""What rounds draw: the same plan from the same seed, features of the target only, and faults that leave a quorum."""

import json
from collections import Counter
from dataclasses import asdict, replace

import pytest
from test_generators import drawn

from harness.errors import UsageError
from harness.schedules import operations as ops
from harness.schedules.generators import Context, Situation
from harness.schedules.operations import Heal, Inject
from harness.schedules.schedule import RoundPlan, Step, plan_of
from harness.soak.draw.plan import ON_GROUPS, SETTINGS, Shape, available, draw_plan
from harness.soak.draw.workload import MOST_AT_ONCE, choose_fault, generator_of, why_not
from nemesis import FAULTS, SCRIPTS
from nemesis.fault import ON_ASSIGNMENT, ON_LINKS

SHAPE = Shape(partitions=12, rate_hz=60.0, is_real=True, group_protocols=("classic",))


def steps_of(shape: Shape, seed: int = 1) -> list[Step]:
    plan = draw_plan(seed, "soak-1", shape)
    writers = frozenset(client.name for client in plan.clients if client.transactional_id)
    generator = generator_of(plan, shape, available((), lambda _: None)[0])
    return drawn(generator, context=Context(seed, situation=Situation(writers)))[0]


def drawn_of(shape: Shape, seeds: int) -> list[ops.Operation]:
    return [step.operation for seed in range(seeds) for step in steps_of(shape, seed)]


def test_a_plan_is_that_of_its_seed_and_the_same_after_json() -> None:
    plan = draw_plan(7, "soak-1", SHAPE)
    assert plan == draw_plan(7, "soak-1", SHAPE)
    assert plan != draw_plan(8, "soak-1", SHAPE)
    assert plan_of(json.loads(json.dumps(asdict(plan))), "a test") == plan


def test_partitions_are_dealt_out_over_topics_and_leaders_and_two_clients_share_a_transactional_id() -> None:
    plan = draw_plan(1, "soak-1", SHAPE)
    assert [topic.partitions for topic in plan.topics] == [3, 3, 2, 2, 2]
    assert len(plan.partitions) == 12
    assert Counter(brokers[0] for brokers in plan.replicas.values()) == {1: 4, 2: 4, 3: 4}
    ids = Counter(client.transactional_id for client in plan.clients)
    del ids[None]
    assert sorted(ids.values(), reverse=True)[:2] == [2, 1]


def test_settings_that_a_target_does_not_know_are_not_drawn() -> None:
    for seed in range(20):
        plan = draw_plan(seed, "soak-1", replace(SHAPE, settings=frozenset({"segment.ms"})))
        assert all(topic.settings.keys() == {"segment.ms"} for topic in plan.topics)
    names = {name for seed in range(60) for topic in draw_plan(seed, "x", SHAPE).topics for name in topic.settings}
    assert names == {*SETTINGS, "retention.ms"}
    # Brokers reject a topic whose least lag exceeds its greatest one (`LogConfig.validateTopicLogConfigValues`).
    least, greatest = (SETTINGS[f"{name}.compaction.lag.ms"] for name in ("min", "max"))
    assert max(int(lag or 0) for lag in least) <= min(int(lag or 2**63 - 1) for lag in greatest)


def test_a_round_has_clients_alone_at_first_and_then_everything() -> None:
    steps = steps_of(SHAPE)
    warm = [step for step in steps if step.at_s < SHAPE.play_s / 6]
    kinds = Counter(type(step.operation).__name__ for step in steps)
    later = ops.Inject | ops.Heal | ops.DeleteRecords | ops.RecreateTopic
    assert not any(isinstance(step.operation, later) for step in warm)
    assert kinds["Inject"] >= 4
    assert {"Write", "End", "Die", "SendOffset", "CommitOffset", "Heal"} <= kinds.keys()
    assert {"DeleteRecords", "RecreateTopic", "AlterTopic"} & kinds.keys()
    assert 0.85 < len(steps) / (SHAPE.rate_hz * SHAPE.play_s) < 1.15
    assert steps == steps_of(SHAPE)


def test_what_a_target_lacks_is_not_drawn() -> None:
    kinds = set(map(type, drawn_of(SHAPE, 6)))
    assert {ops.DeleteRecords, ops.RecreateTopic, ops.SendOffset, ops.CommitOffset} <= kinds
    assert not set(map(type, drawn_of(replace(SHAPE, is_real=False), 6))) & {*ON_GROUPS}


def test_a_transaction_has_a_few_records_at_most_and_ends_only_where_there_is_one() -> None:
    transactional = {client.name for client in draw_plan(1, "soak-1", SHAPE).clients if client.transactional_id}
    records: Counter[str] = Counter()
    for operation in (step.operation for step in steps_of(replace(SHAPE, is_real=False))):
        if isinstance(operation, ops.Write) and operation.process in transactional:
            records[operation.process] += 1
            assert records[operation.process] <= 5
        elif isinstance(operation, ops.End):
            assert records.pop(operation.process)
        else:
            records.pop(operation.process, None)


@pytest.mark.parametrize("missing", ["seed", "topics", "clients", "brokers", "lasts_s", "filled"])
def test_a_plan_that_lacks_something_is_refused(missing: str) -> None:
    content = {name: value for name, value in asdict(RoundPlan(1, (), ())).items() if name != missing}
    with pytest.raises(UsageError, match="the plan is wrong"):
        plan_of(content, "a test")


def test_records_are_deleted_only_where_brokers_allow_it() -> None:
    for seed in range(6):
        settings = {topic.name: topic.settings for topic in draw_plan(seed, "soak-1", SHAPE).topics}
        deleted = [step.operation for step in steps_of(SHAPE, seed) if isinstance(step.operation, ops.DeleteRecords)]
        assert all(settings[operation.topic]["cleanup.policy"] == "compact,delete" for operation in deleted)
    unknown = replace(SHAPE, settings=frozenset({"segment.ms"}))
    assert any(isinstance(operation, ops.DeleteRecords) for operation in drawn_of(unknown, 6))


def test_a_group_is_deleted_by_the_name_under_which_it_commits() -> None:
    operations = drawn_of(SHAPE, 4)
    committed = {op.group for op in operations if isinstance(op, ops.CommitOffset | ops.SendOffset)}
    deleted = {op.group for op in operations if isinstance(op, ops.DeleteGroup)}
    assert deleted
    assert deleted <= committed


BROKERS = (1, 2, 3)
DRAWN, LEFT_OUT = available((), lambda _: None)


def test_every_fault_is_drawn_or_listed_with_the_reason_such_as_a_missing_ability() -> None:
    assert FAULTS.keys() | SCRIPTS.keys() == DRAWN.keys() | LEFT_OUT.keys()
    assert not DRAWN.keys() & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())
    drawn, left_out = available({"kill"}, lambda needs: f"no {', '.join(needs)}" if "clock" in str(needs) else None)
    assert "kill" not in drawn
    assert left_out["kill"] == "not supported by this target"
    assert left_out["clock-skew"].startswith("no a separate clock")
    assert drawn.keys() | left_out.keys() == FAULTS.keys() | SCRIPTS.keys()
    assert "pause" in drawn


@pytest.mark.parametrize(("fault", "broker", "active", "reason"), [
    ("kill", 2, [], None),
    ("kill", 2, [("kill", 2)], "it is active"),
    ("kill", 2, [("pause", 2)], "broker 2 is out of the ISR"),
    ("kill", 3, [("pause", 2)], "a quorum of controllers has to stay"),
    ("lossy", 3, [("kill", 2)], None),
    ("slow", 3, [("lossy", 2)], "only one of links at a time"),
    ("lead", 1, [("unassign", 3)], "only one of assignment at a time"),
    ("unassign", 2, [("kill", 2)], None),
    ("late-cleaner", 2, [("kill", 2)], "broker 2 is out of the ISR"),
    ("clock-skew", 1, [("kill", 2), ("lossy", 1), ("unassign", 3), ("throttle", 3)], "4 faults are active"),
])  # fmt: skip
def test_what_cannot_be_combined(fault: str, broker: int, active: list[tuple[str, int]], reason: str | None) -> None:
    assert why_not(FAULTS[fault], broker, active, BROKERS, FAULTS) == reason


def test_faults_overlap_and_a_quorum_stays_whatever_is_drawn() -> None:
    choose, context = choose_fault(DRAWN, BROKERS), Context(seed=3)
    most, names = 0, set[str]()
    for number in range(3000):
        context = replace(context, drawn=number, now_s=float(number))
        if (operation := choose(context)) is None:
            continue
        assert isinstance(operation, Inject | Heal)
        names.add(operation.fault)
        context = replace(context, situation=context.situation.after(Step(context.now_s, operation)))
        active = context.situation.faults
        assert sum(FAULTS[name].leaves_isr for name, _ in active) <= 1
        for group in (ON_LINKS, ON_ASSIGNMENT):
            assert sum(FAULTS[name].alone_in == group for name, _ in active) <= 1
        most = max(most, len(active))
    assert most == MOST_AT_ONCE
    assert names == DRAWN.keys()


def test_a_fault_lasts_for_a_while() -> None:
    choose, context = choose_fault(DRAWN, BROKERS), Context(seed=1)
    context = replace(context, situation=context.situation.after(Step(10.0, Inject("kill", 2))))
    for now_s, ends in ((13.9, False), (14.0, True)):
        drawn = [choose(replace(context, drawn=number, now_s=now_s)) for number in range(200)]
        assert (Heal("kill", 2) in drawn) is ends
