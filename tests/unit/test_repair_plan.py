"""Repairs that an audit's findings allow: literal verdicts of small partitions."""

import io
from datetime import UTC, datetime
from typing import Any

import findings
import pytest
from rich.console import Console

from harness.audit.explain.advice import caution_of
from harness.errors import UsageError
from harness.json_codec import to_json
from harness.protect.repair import plan as module
from harness.protect.repair.plan import Abort, PreparedRepair, RepairPlan, read_audit
from harness.protect.repair.show import exit_code_of_plan, show_plan
from harness.terminal import Terminal

CAUTION = caution_of(findings.finding())
ORDERS = ("orders", 0)


def finding(broker: int = 2, **more: Any) -> dict[str, Any]:
    fields = {"topic": "orders", "explanation": f"broker {broker} serves a deleted value", **more}
    return dict(to_json(findings.finding(broker=broker, **fields)))


def undecided(*groups: tuple[list[int], str], **more: Any) -> dict[str, Any]:
    disagree = [{"brokers": brokers, "serves": serves} for brokers, serves in groups]
    return finding(decided=False, disagree=disagree, right=[], **more)


def verdict(*of_findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return what an audit prints that read the replicas of brokers 1, 2 and 3."""
    exposure = {"replicas": [{"broker": broker} for broker in (1, 2, 3)]}
    scenario = {"anomaly": None, "payload": None, "verdict": "anomaly", "reason": "", "exposure": exposure}
    scenarios = [
        {**scenario, "scenario": f"{topic}-{n}", "topic": topic, "partition": n}
        for topic, n in dict.fromkeys((one["topic"], one["partition"]) for one in of_findings)
    ]
    target, run_id = {"name": "cluster", "cluster_id": "c1"}, "audit-2026-11-24T10-20-30Z-ab12"
    audit = findings.verdict(run_id=run_id, target=target, findings=list(of_findings), scenarios=scenarios)
    return {**to_json(audit), **more}


def plan_of(content: Any, *arguments: Any, **named: Any) -> RepairPlan:
    return module.plan_of(read_audit(content), *arguments, **named)


DISPUTED = undecided(([1, 3], "a delete"), ([2], "the value"))


@pytest.mark.parametrize(
    ("of_findings", "right", "expected"),
    [
        ([finding(right=[1, 3]), finding(offset=9, right=[1])], {}, ((2,), (1, 3))),
        ([finding(2, right=[1, 3]), finding(3, right=[1])], {}, ((2, 3), (1,))),
        ([DISPUTED], {ORDERS: 1}, ((2,), (1, 3))),
        ([DISPUTED, undecided(([1], "x"), ([2, 3], "y"), offset=7)], {ORDERS: 1}, ((2, 3), (1,))),
        ([finding(right=[])], {ORDERS: 3}, ((2,), (3,))),
    ],
    ids=["decided", "right in one and wrong in another", "a person decides", "twice", "only the wrong one is decided"],
)
def test_a_wrong_replica_is_rebuilt_from_those_that_are_right(
    of_findings: list[dict[str, Any]], right: dict[Any, int], expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    plan = plan_of(verdict(*of_findings), right)
    (task,) = plan.tasks
    assert (task.partition, task.wrong, task.right) == (ORDERS, *expected)
    assert (task.why[0] == "a person decided that broker 1 is right") == (right == {ORDERS: 1})
    assert (plan.undecided, plan.aborts, plan.cluster_id) == ((), (), "c1")
    assert plan.audited_at == datetime(2026, 11, 24, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("of_findings", "serves"),
    [
        ([finding(right=[])], ()),
        ([finding()], ()),
        ([finding(2, right=[3]), finding(3, right=[2])], ()),
        ([finding(right=[1, 3]), DISPUTED], ("offset 5: brokers 1, 3: a delete", "offset 5: broker 2: the value")),
    ],
    ids=["none is shown to be right", "an answer of brokers", "each is wrong somewhere", "another is undecided"],
)
def test_a_partition_is_left_unless_all_is_decided_and_a_replica_is_right(
    of_findings: list[dict[str, Any]], serves: tuple[str, ...]
) -> None:
    plan = plan_of(verdict(*of_findings))
    assert plan.tasks == ()
    (partition,) = plan.undecided
    assert (partition.partition, partition.replicas, partition.serves) == (ORDERS, (1, 2, 3), serves)


def test_replicas_that_were_not_read_are_those_that_brokers_named() -> None:
    quick = verdict(finding(anomaly="stuck-lso", witness={"decided_on": [1, 3]}))
    quick["scenarios"][0]["exposure"]["replicas"] = []
    assert [partition.replicas for partition in plan_of(quick).undecided] == [(1, 2, 3)]


@pytest.mark.parametrize(
    ("of_findings", "broker", "message"),
    [
        ([finding(right=[])], 2, "the audit shows that this replica is wrong"),
        ([undecided(([1], "a"), ([2], "b"))], 3, "did not compare this replica at offset 5"),
        ([undecided(([1], "a"), ([2], "b")), finding(1, offset=6)], 1, "the audit shows that this replica is wrong"),
        ([finding(anomaly="hanging-transaction", producer_id=7)], 1, "its replicas do not disagree"),
    ],
)
def test_a_person_cannot_contradict_the_audit(of_findings: list[dict[str, Any]], broker: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"--right orders-0={broker}: .*{message}"):
        plan_of(verdict(*of_findings), {ORDERS: broker})


def test_only_a_hanging_transaction_is_aborted() -> None:
    hanging = finding(anomaly="hanging-transaction", producer_id=7, offset=3)
    stuck = finding(anomaly="stuck-lso", producer_id=8, right=[1], partition=1)
    plan = plan_of(verdict(*({**hanging, "broker": broker} for broker in (1, 2, 3)), stuck))
    assert plan.aborts == (Abort(ORDERS, 7, 3, CAUTION),), "one marker, not one a replica"
    assert [task.partition for task in plan.tasks] == [("orders", 1)]


@pytest.mark.parametrize(
    ("name", "is_flink"),
    [
        ("orders-sink-0-17", True),
        ("a-b-12-1099511627776", True),
        ("orders-7", False),
        ("app-0_1", False),
        ("app-123e4567-e89b-12d3-a456-426614174000-1", False),
        (None, False),
    ],
)
def test_a_transaction_that_flink_may_commit_is_left_to_a_person(name: str | None, is_flink: bool) -> None:  # noqa: FBT001
    witness = {"transactional_id": name}
    content = verdict(finding(anomaly="hanging-transaction", producer_id=7, witness=witness))
    plan = plan_of(content)
    (abort,) = plan.aborts
    assert abort.caution.may_be_committed == is_flink
    assert ("restart the Flink job from its last checkpoint" in abort.caution.text) == is_flink
    out = io.StringIO()
    show_plan(Terminal(Console(file=out, width=400)), plan, PreparedRepair(()))
    first, second = out.getvalue().splitlines()[1:3]
    assert first.startswith("NOT ABORTED: the hanging" if is_flink else "ABORT the hanging")
    assert second == f"  {abort.caution.text}"
    assert exit_code_of_plan(plan, PreparedRepair(())) == (2 if is_flink else 0)


def test_groups_whose_offsets_differ_are_named() -> None:
    commit = "kafka-consumer-groups.sh …"
    record = {"topic_kind": "k", "text": "g", "type": "OffsetCommit", "key": {"group": "g"}, "commit": commit}
    (task,) = plan_of(verdict(finding(right=[1], record=record, topic="__consumer_offsets"))).tasks
    assert (task.groups, task.commits) == (("g",), (commit,))


def test_a_choice_of_partitions_leaves_the_others_out() -> None:
    two = verdict(finding(right=[1]), finding(right=[1], partition=1))
    assert [task.partition for task in plan_of(two, only=[("orders", 1)]).tasks] == [("orders", 1)]
    with pytest.raises(UsageError, match="orders-2: the audit has no finding on this partition"):
        plan_of(two, only=[("orders", 2)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "not a verdict"),
        ([], "not a verdict"),
        (verdict(schema=2), "of schema 2"),
        (verdict(scenarios=[{**verdict(finding())["scenarios"][0], "partition": None, "partitions": [0]}]),
         "the verdict of a run"),
        (verdict(findings=[{}]), r"a damaged verdict: Verdict.findings\[0\] has no anomaly"),
    ],
)  # fmt: skip
def test_what_is_no_verdict_of_an_audit_is_refused(content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(content)


def test_partitions_that_could_not_be_compared_are_listed() -> None:
    content = verdict(finding(right=[1]))
    content["scenarios"][0] |= {"verdict": "unknown", "reason": "not read"}
    assert plan_of(content).unknown == (("orders-0", "not read"),)
