"""The command line of repairs: rejected arguments, output, and exit codes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result
from findings import verdict as verdict_of
from test_repair_plan import CAUTION, finding, plan_of, undecided, verdict

from harness.cli.repair import parse_partition, repair, rights_of
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, UsageError
from harness.protect.repair import run
from harness.protect.repair.plan import Abort, PreparedRepair, Undecided, read_audit
from harness.protect.repair.run import Aborted, RepairResult, is_confirmed
from harness.protect.repair.service import RepairOutcome
from harness.protect.repair.show import age_text, exit_code, exit_code_of_plan, result_json
from harness.protect.repair.steps import PartitionRepair

TP = ("orders", 0)
ENTRY = PartitionRepair(TP, "id", (1, 2, 3), 1, (1, 3), (2,), audit="audit-1")
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*HERE,), "give --plan or --apply"),
        (("--plan",), "Missing option '--bootstrap-server'"),
        ((*HERE, "--plan"), "no broker answers"),
        ((*HERE, "--plan", "--partition", "orders"), "'orders': give it as TOPIC-PARTITION"),
        ((*HERE, "--plan", "--partition", "orders-7"), "orders-7: the audit has no finding"),
        ((*HERE, "--apply", "--right", "orders-1=x"), "give TOPIC-PARTITION=BROKER"),
        ((*HERE, "--apply", "--right", "1"), "name the partitions by --partition"),
        ((*HERE, "--apply", "--right", "orders-1=1"), "save the folder of the partition of every replica first"),
        ((*HERE, "--apply", "--right", "orders-1=1", "--saved-folders", "."), "1/orders-1 has no segment"),
        ((*HERE, "--apply", "--right", "orders-1=1", "--saved-elsewhere"), "no broker answers"),
        ((*HERE, "--plan", "--right", "orders-0=2"), "the audit shows that this replica is wrong"),
    ],
)
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
    with pytest.raises(UsageError, match="both broker 1 and broker 2 for a-0"):
        rights_of(["a-0=1", "a-0=2"], [])


def looked(*refused: Undecided) -> PreparedRepair:
    return PreparedRepair((ENTRY,), refused)


def result(after: str | None = "clean", *refused: Undecided, why: str | None = None) -> RepairResult:
    scenario = {**verdict(finding())["scenarios"][0], "verdict": after}
    audited = None if after is None else verdict_of(scenarios=[scenario])
    return RepairResult(looked(*refused), (RepairOutcome(TP, why, 5.0, 1, 300, 200),), (), audited, 30.0)


DECIDED = plan_of(verdict(finding(right=[1, 3])))
OPEN = plan_of(verdict(undecided(([1], "a"), ([2, 3], "b"))))


def test_exit_codes() -> None:
    assert exit_code(DECIDED, result()) == EXIT_CLEAN
    assert exit_code(DECIDED, result("anomaly")) == EXIT_ANOMALY
    assert exit_code(DECIDED, result("unknown")) == EXIT_UNKNOWN
    assert exit_code(DECIDED, result(None)) == EXIT_UNKNOWN
    assert exit_code(DECIDED, result(why="waited in vain")) == EXIT_ANOMALY
    assert exit_code(DECIDED, result("clean", Undecided(TP, "down"))) == EXIT_ANOMALY
    assert exit_code(OPEN, result("anomaly")) == EXIT_UNKNOWN
    assert exit_code(OPEN, result("clean")) == EXIT_CLEAN
    assert exit_code_of_plan(DECIDED, looked()) == EXIT_CLEAN
    assert exit_code_of_plan(OPEN, looked()) == EXIT_UNKNOWN
    assert exit_code_of_plan(DECIDED, looked(Undecided(TP, "down"))) == EXIT_UNKNOWN


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
    assert age_text(now - timedelta(hours=25, minutes=3), now) == "the audit began 25 h 3 min ago"
    assert age_text(now, now) == "the audit began 0 min ago"
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


def test_a_transaction_is_aborted_only_if_it_still_hangs() -> None:
    abort = Abort(TP, 7, 3, CAUTION)

    def suspicion(**more: Any) -> Any:
        content = {"anomaly": "hanging-transaction", "topic": "orders", "partition": 0, "offset": 3}
        return SimpleNamespace(**{**content, "transaction": SimpleNamespace(producer_id=7), **more})

    assert is_confirmed(abort, suspicion())
    for other in ({"anomaly": "stuck-lso"}, {"offset": 4}, {"partition": 1}, {"transaction": None}):
        assert not is_confirmed(abort, suspicion(**other))
    not_aborted = RepairResult(looked(), (), (Aborted(abort, "no leader"),), None, 1.0)
    plan = plan_of(verdict(finding(anomaly="hanging-transaction", producer_id=7)))
    assert exit_code(plan, not_aborted) == EXIT_ANOMALY
