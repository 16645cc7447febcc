"""Repairs that an audit's findings allow, and their command line: literal verdicts of small partitions."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import findings
import pytest
from click.testing import CliRunner, Result
from findings import verdict as verdict_of
from rich.console import Console

from harness.audit.explain.advice import caution_of
from harness.cli.repair import parse_partition, repair, rights_of
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, UsageError
from harness.json_codec import to_json
from harness.protect.repair import plan as module
from harness.protect.repair import run
from harness.protect.repair.plan import Abort, PreparedRepair, RepairPlan, Undecided, read_audit
from harness.protect.repair.run import Aborted, RepairResult
from harness.protect.repair.service import RepairOutcome
from harness.protect.repair.show import age_text, exit_code, exit_code_of_plan, result_json, show_plan
from harness.protect.repair.steps import PartitionRepair
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
    target = {"name": "cluster", "cluster_id": "c1", "topic_ids": {"orders": "id"}}
    run_id = "audit-2026-11-24T10-20-30Z-ab12"
    audit = findings.verdict(run_id=run_id, target=target, findings=list(of_findings), scenarios=scenarios)
    return {**to_json(audit), **more}


def plan_of(content: Any, *arguments: Any, **named: Any) -> RepairPlan:
    return module.plan_of(read_audit(content), *arguments, **named)


DISPUTED = undecided(([1, 3], "a delete"), ([2], "the value"))


@pytest.mark.parametrize(("of_findings", "right", "expected"), [
    ([finding(right=[1, 3]), finding(offset=9, right=[1])], {}, ((2,), (1, 3))),
    ([finding(2, right=[1, 3]), finding(3, right=[1])], {}, ((2, 3), (1,))),
    ([DISPUTED], {ORDERS: 1}, ((2,), (1,))),
    ([DISPUTED], {ORDERS: 2}, ((1, 3), (2,))),
    ([DISPUTED, undecided(([1], "x"), ([2, 3], "y"), offset=7)], {ORDERS: 1}, ((2, 3), (1,))),
    ([finding(right=[])], {ORDERS: 3}, ((2,), (3,))),
], ids=["decided", "right in one, wrong in another", "a person decides", "the other", "twice", "no other"])  # fmt: skip
def test_a_wrong_replica_is_rebuilt_from_those_that_are_right(
    of_findings: list[dict[str, Any]], right: dict[Any, int], expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    plan = plan_of(verdict(*of_findings), right)
    (task,) = plan.tasks
    assert (task.partition, task.wrong, task.right) == (ORDERS, *expected)
    assert (task.why[0] == f"a person decided that broker {right.get(ORDERS)} is right") == bool(right)
    assert (plan.undecided, plan.aborts, plan.cluster_id, plan.topic_ids) == ((), (), "c1", {"orders": "id"})
    assert plan.audited_at == datetime(2026, 11, 24, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize(("of_findings", "serves"), [
    ([finding(right=[])], ()),
    ([finding()], ()),
    ([finding(2, right=[3]), finding(3, right=[2])], ()),
    ([finding(right=[1, 3]), DISPUTED], ("offset 5: brokers 1, 3: a delete", "offset 5: broker 2: the value")),
], ids=["none is shown to be right", "an answer of brokers", "each is wrong", "another is undecided"])  # fmt: skip
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


@pytest.mark.parametrize(("of_findings", "broker", "message"), [
    ([undecided(([1], "a"), ([2], "b"))], 3, "did not compare this replica at offset 5"),
    ([undecided()], 2, "did not compare this replica at offset 5"),
    ([undecided(([1], "a"), ([2], "b")), finding(1, offset=6)], 1, "the audit shows that this replica is wrong"),
    ([finding(anomaly="hanging-transaction", producer_id=7)], 1, "its replicas do not disagree"),
])  # fmt: skip
def test_a_person_cannot_contradict_the_audit(of_findings: list[dict[str, Any]], broker: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"--right orders-0={broker}: .*{message}"):
        plan_of(verdict(*of_findings), {ORDERS: broker})


def test_only_a_hanging_transaction_is_aborted() -> None:
    hanging = finding(anomaly="hanging-transaction", producer_id=7, offset=3)
    stuck = finding(anomaly="stuck-lso", producer_id=8, right=[1], partition=1)
    plan = plan_of(verdict(*({**hanging, "broker": broker} for broker in (1, 2, 3)), stuck))
    assert plan.aborts == (Abort(ORDERS, 7, 3, CAUTION),), "one marker, not one a replica"
    assert [task.partition for task in plan.tasks] == [("orders", 1)]


@pytest.mark.parametrize(("name", "is_flink"), [
    ("orders-sink-0-17", True),
    ("a-b-12-1099511627776", True),
    ("orders-7", False),
    ("app-0_1", False),
    ("app-123e4567-e89b-12d3-a456-426614174000-1", False),
    (None, False),
])  # fmt: skip
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


@pytest.mark.parametrize(("content", "message"), [
    ({}, "not a verdict"),
    ([], "not a verdict"),
    (verdict(schema=2), "of schema 2"),
    (verdict(scenarios=[{**verdict(finding())["scenarios"][0], "partition": None, "partitions": [0]}]),
     "the verdict of a run"),
    (verdict(findings=[{}]), r"a damaged verdict: Verdict.findings\[0\] has no anomaly"),
])  # fmt: skip
def test_what_is_no_verdict_of_an_audit_is_refused(content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(content)


def test_partitions_that_could_not_be_compared_are_listed_and_others_may_be_left_out() -> None:
    content = verdict(finding(right=[1]))
    content["scenarios"][0] |= {"verdict": "unknown", "reason": "not read"}
    assert plan_of(content).unknown == (("orders-0", "not read"),)
    two = verdict(finding(right=[1]), finding(right=[1], partition=1))
    assert [task.partition for task in plan_of(two, only=[("orders", 1)]).tasks] == [("orders", 1)]


ENTRY = PartitionRepair(ORDERS, "id", (1, 2, 3), 1, (1, 3), (2,), audit="audit-1")
HERE = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(verdict(finding(right=[1, 3]), undecided(([1], "a"), ([2, 3], "b"), partition=1))))
    return path


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(repair, arguments, standalone_mode=False)


def refusal(*arguments: str) -> str:
    ended = invoked(*arguments)
    assert isinstance(ended.exception, (UsageError, click.UsageError)), ended
    return ended.exception.format_message() if isinstance(ended.exception, click.UsageError) else str(ended.exception)


@pytest.mark.parametrize(("arguments", "expected"), [
    ((*HERE,), "give --plan or --apply"),
    ((*HERE, "--plan", "--apply"), "give --plan or --apply, and not both"),
    (("--plan",), "Missing option '--bootstrap-server'"),
    ((*HERE, "--plan"), "no broker answers"),
    ((*HERE, "--plan", "--partition", "orders"), "'orders': give it as TOPIC-PARTITION"),
    ((*HERE, "--plan", "--partition", "orders-7"), "orders-7: the audit has no finding on this partition"),
    ((*HERE, "--apply", "--right", "orders-1=x"), "give TOPIC-PARTITION=BROKER"),
    ((*HERE, "--apply", "--right", "1"), "name the partitions by --partition"),
    ((*HERE, "--apply", "--right", "orders-1=1"), "save the folder of the partition of every replica first"),
    ((*HERE, "--apply", "--right", "orders-1=1", "--saved-folders", "."), "1/orders-1 has no segment"),
    ((*HERE, "--apply", "--right", "orders-1=1", "--saved-elsewhere"), "no broker answers"),
    ((*HERE, "--plan", "--right", "orders-0=2"), "--right orders-0=2: the audit shows that this replica is wrong"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused(audit: Path, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in refusal(str(audit), *arguments)


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00"])
def test_what_is_no_verdict_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "audit.json"
    path.write_text(content)
    assert str(path) in refusal(str(path), *HERE, "--plan")


def test_names_of_partitions_and_decisions() -> None:
    assert parse_partition("a-b-12") == ("a-b", 12)
    assert rights_of(["a-0=1", "a-1=2"], []) == {("a", 0): 1, ("a", 1): 2}
    assert rights_of(["3"], [("a", 0), ("b", 0)]) == {("a", 0): 3, ("b", 0): 3}
    with pytest.raises(UsageError, match="--partition leaves this partition out"):
        rights_of(["a-1=3"], [("a", 0)])
    with pytest.raises(UsageError, match="both broker 1 and 2 for a-0"):
        rights_of(["a-0=1", "a-0=2"], [])


def looked(*refused: Undecided) -> PreparedRepair:
    return PreparedRepair((ENTRY,), refused)


def result(after: str | None = "clean", *refused: Undecided, why: str | None = None) -> RepairResult:
    scenario = {**verdict(finding())["scenarios"][0], "verdict": after}
    audited = None if after is None else verdict_of(scenarios=[scenario])
    return RepairResult(looked(*refused), (RepairOutcome(ORDERS, why, 5.0, 1, 300, 200),), (), audited, 30.0)


DECIDED = plan_of(verdict(finding(right=[1, 3])))
OPEN = plan_of(verdict(undecided(([1], "a"), ([2, 3], "b"))))


def test_exit_codes() -> None:
    assert exit_code(DECIDED, result()) == EXIT_CLEAN
    assert exit_code(DECIDED, result("anomaly")) == EXIT_ANOMALY
    assert exit_code(DECIDED, result("unknown")) == EXIT_UNKNOWN
    assert exit_code(DECIDED, result(None)) == EXIT_UNKNOWN
    assert exit_code(DECIDED, result(why="waited in vain")) == EXIT_ANOMALY
    assert exit_code(DECIDED, result("clean", Undecided(ORDERS, "down"))) == EXIT_ANOMALY
    assert exit_code(OPEN, result("anomaly")) == EXIT_UNKNOWN
    assert exit_code(OPEN, result("clean")) == EXIT_CLEAN
    assert exit_code_of_plan(DECIDED, looked()) == EXIT_CLEAN
    assert exit_code_of_plan(OPEN, looked()) == EXIT_UNKNOWN
    assert exit_code_of_plan(DECIDED, looked(Undecided(ORDERS, "down"))) == EXIT_UNKNOWN


def test_a_result_has_before_and_after_and_the_figures() -> None:
    shown = result_json(DECIDED, result(), read_audit(verdict(finding(right=[1, 3]))))
    assert shown["partitions"] == [
        {"topic": "orders", "partition": 0, "before": "differ", "after": "agree", "why": None}
    ]
    assert shown["figures"] == {
        "took_s": 30.0, "partitions_per_minute": 2.0, "copied_bytes": 300, "copied_bytes_per_replica_byte": 1.5,
    }  # fmt: skip
    assert shown["plan"]["repairs"][0]["wrong"] == [2]
    assert json.loads(json.dumps(shown)) == shown


def test_the_age_of_an_audit_is_said() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert age_text(now - timedelta(hours=25, minutes=3), now) == "the audit began 25.1 h ago"
    assert age_text(now, now) == "the audit began 0 s ago"
    assert age_text(None) == "the audit does not have the time of its begin"


def test_a_plan_is_shown_with_what_each_replica_serves(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "look", lambda *_: looked())
    arguments = (str(audit), *HERE, "--plan")
    text = invoked(*arguments)
    assert text.return_value == EXIT_UNKNOWN
    assert "REPAIR orders-0: the replica of broker 2 is removed and copied from broker 1 or broker 3" in text.stdout
    assert "offset 5: brokers 2, 3: b" in text.stdout
    assert "add --right orders-1=BROKER and --saved-folders DIR" in text.stdout
    shown = json.loads(invoked(*arguments, "--format", "json").stdout)
    assert [entry["partition"] for entry in shown["undecided"]] == [1]
    assert "decided by a person: orders-1" in invoked(*arguments, "--right", "orders-1=1").stderr


def test_an_applied_repair_is_shown(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Mock(return_value=result())
    monkeypatch.setattr(run, "apply", apply)
    arguments = (str(audit), *HERE, "--apply", "--partition", "orders-0", "--throttle-mb", "2")
    ended = invoked(*arguments)
    assert ended.return_value == EXIT_CLEAN, ended
    assert ["orders-0", "differ", "agree"] in [line.split() for line in ended.stdout.splitlines()]
    assert "repaired 1 partition in 30.0 s" in ended.stdout
    request = apply.call_args.args[0]
    assert (request.rate_bytes_s, request.at_once, request.audit) == (2_000_000, 4, verdict()["run_id"])
    assert json.loads(invoked(*arguments, "--format", "json").stdout)["exit_code"] == EXIT_CLEAN


def test_a_transaction_that_is_not_aborted_is_left() -> None:
    not_aborted = RepairResult(looked(), (), (Aborted(Abort(ORDERS, 7, 3, CAUTION), "no leader"),), None, 1.0)
    plan = plan_of(verdict(finding(anomaly="hanging-transaction", producer_id=7)))
    assert exit_code(plan, not_aborted) == EXIT_ANOMALY
