"""The verdict on a round: findings of either judge, findings without a name, and the comparison with an audit."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from findings import audited_verdict, finding, violated
from pyspark.sql import SparkSession
from soaked import ABORTS, DIES, KILL, SMALL, START, P, T, play_steps, put

from harness.json_codec import to_json
from harness.judge.finding import Finding
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CHECKERS, CLEAN, CLIENTS, UNKNOWN, Doubt
from harness.run_folder.store import RunFolder
from harness.schedules.operations import Operation
from harness.schedules.schedule import Schedule
from harness.soak.causes.cause import RoundEvidence
from harness.soak.causes.reopened_transaction import reopened
from harness.soak.judge.judge_rounds import judge_rounds
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.judge.truth import STATE, STUCK, Truth, Wrong
from harness.soak.play.round import PlayedRound

TP = ("t", 0)
HANGING, REOPENED = "hanging-transaction", "reopened-transaction"
PLAYED = PlayedRound(Schedule((), target="sim-kafka", plan=SMALL))
AUDITED = audited_verdict("t")
NOTHING = CheckedRound()
UNDELETED = Wrong(STATE, "k", "the value of write 1", "no value", due=0)
LOST = Wrong(STATE, "k", "no value", "the value of write 1", due=0)


def truth(*wrongs: Wrong, unknown: frozenset[Any] = frozenset()) -> Truth:
    """Return the truth about a partition whose replica on broker 2 has these errors."""
    wrongs_by_replica = {(broker, TP): wrongs if broker == 2 else () for broker in (1, 2, 3)}
    return Truth(wrongs_by_replica, unknown, {replica: {} for replica in wrongs_by_replica}, {}, {})


def row(anomaly: str, broker: int = 2) -> Finding:
    return finding(anomaly=anomaly, broker=broker, offset=3, key={"text": "k"}, explanation=f"it is {anomaly}")


UNNAMED = CheckedRound([row("unexplained-divergence")])


def verdict(actual: Truth, checked: CheckedRound = NOTHING, expected: tuple[str, ...] = ()) -> dict[str, Any]:
    return judged(JudgeResults(RoundEvidence(actual), checked, AUDITED), expected)


def judged(
    results: JudgeResults | None, expected: Collection[str] = (), played: PlayedRound = PLAYED
) -> dict[str, Any]:
    """Return the verdict on a round as JSON."""
    content: dict[str, Any] = to_json(verdict_of(played, results, expected))
    return content


def named(result: dict[str, Any]) -> list[tuple[str, int]]:
    """Return anomaly and broker of each finding."""
    return [(entry["anomaly"], entry["broker"]) for entry in result["findings"]]


def doubted(broker: int, reason: str) -> CheckedRound:
    return CheckedRound(doubts=[Doubt(broker=broker, topic="t", partition=0, kind="contradiction", reason=reason)])


def test_a_round_without_anything_wrong_is_clean() -> None:
    result, reason = verdict(truth()), "3 replicas were read in full and agree with the history of clients"
    assert (result["verdict"], result["reason"]) == (CLEAN, reason)


def test_both_judges_name_one_finding() -> None:
    result = verdict(truth(UNDELETED, UNDELETED), CheckedRound([row("tombstone-divergence")]))
    assert (result["verdict"], result["unexplained"]) == (ANOMALY, [])
    (entry,) = result["findings"]
    assert (entry["anomaly"], entry["broker"], entry["count"]) == ("tombstone-divergence", 2, 2)
    assert entry["found_by"] == [CLIENTS, CHECKERS]


def test_what_only_one_judge_calls_wrong_is_a_finding_and_unexplained() -> None:
    for actual, checked, by in (
        (truth(UNDELETED), CheckedRound(), CLIENTS),
        (truth(), CheckedRound([row("tombstone-divergence")]), CHECKERS),
    ):
        result = verdict(actual, checked)
        assert result["verdict"] == ANOMALY
        assert result["findings"][0]["found_by"] == [by]
        assert [entry["found_by"] for entry in result["unexplained"]] == [by]
        assert "nothing wrong with this replica" in result["unexplained"][0]["explanation"]


def test_a_transaction_that_hangs_everywhere_is_known_by_clients_alone() -> None:
    """By the logs it may be in progress: only clients know that it has ended."""
    hangs = Wrong(STUCK, "k", "open", "committed", 4, 7, due=0)
    actual = truth()
    everywhere = replace(actual, wrongs=dict.fromkeys(actual.wrongs, (hangs,)))
    result = verdict(everywhere)
    assert named(result) == [(HANGING, 1), (HANGING, 2), (HANGING, 3)]
    assert result["unexplained"] == []


def test_what_has_no_name_is_unexplained_and_the_round_unknown() -> None:
    result = verdict(truth(LOST), UNNAMED)
    assert (result["verdict"], result["findings"]) == (UNKNOWN, [])
    assert [entry["found_by"] for entry in result["unexplained"]] == [CLIENTS, CHECKERS]
    unknown_key = truth(unknown=frozenset({(TP, "k")}))
    assert verdict(unknown_key, UNNAMED)["verdict"] == CLEAN, "no client knows the key"


def test_what_clients_can_name_is_not_unexplained() -> None:
    carried_out = replace(LOST, counts_aborted=(7,))
    result = verdict(replace(truth(carried_out), followed={(TP, 7): {"committed"}}), UNNAMED)
    assert (named(result), result["findings"][0]["found_by"]) == ([("aborted-to-committed", 2)], [CLIENTS])
    assert result["unexplained"] == []


def test_what_lies_below_the_log_start_is_no_finding() -> None:
    """Compaction removes a marker whose transaction lies below the log start, and leaves its records on disk."""
    for log_start, expected in ((4, CLEAN), (3, ANOMALY)):
        actual = replace(truth(), log_starts={(2, TP): log_start})
        assert verdict(actual, CheckedRound([row("stuck-lso")]))["verdict"] == expected


def test_expected_findings_are_listed_and_tolerated() -> None:
    actual, checked = truth(UNDELETED), CheckedRound([row("tombstone-divergence")])
    result = verdict(actual, checked, ("tombstone-divergence",))
    assert (result["verdict"], named(result)) == (AS_EXPECTED, [("tombstone-divergence", 2)])
    assert result["reason"].endswith("the history of clients, but for known findings: 1 tombstone-divergence")
    assert verdict(actual, checked, ("stuck-lso",))["verdict"] == ANOMALY


@pytest.mark.parametrize("checked", [CheckedRound(raised={"doubts": "ValueError: no"}), doubted(1, "it contradicts")])
def test_what_could_not_be_judged_forbids_clean(checked: CheckedRound) -> None:
    assert verdict(truth(), checked)["verdict"] == UNKNOWN


def test_a_transaction_that_is_open_again_is_a_finding_and_no_doubt() -> None:
    checked = doubted(2, "the broker says that producer 3 has an open transaction, its log that it has none")
    assert verdict(truth(), checked)["verdict"] == UNKNOWN
    actual = JudgeResults(RoundEvidence(truth()), checked, AUDITED, reopened=[reopened(2, TP, 3, 5, 9)])
    assert (judged(actual)["verdict"], named(judged(actual))) == (ANOMALY, [(REOPENED, 2)])
    assert judged(actual, [REOPENED])["verdict"] == AS_EXPECTED


def test_a_guarantee_that_is_violated_without_a_finding_is_unexplained() -> None:
    checked = CheckedRound(guarantees=[violated("order", "out of order")])
    result = verdict(truth(), checked)
    assert result["verdict"] == UNKNOWN
    assert result["unexplained"][0]["explanation"] == "the guarantee order is violated: out of order"
    stuck = Wrong(STUCK, "k", "open", "aborted", 1, 7, 9)
    both = replace(checked, findings=[row("stuck-lso")])
    assert verdict(truth(stuck), both)["unexplained"] == [], "the finding explains it"


def test_an_audit_that_accuses_a_right_replica_is_unexplained() -> None:
    audited = replace(AUDITED, findings=(row("tombstone-divergence", broker=1),))
    result = judged(JudgeResults(RoundEvidence(truth()), NOTHING, audited))
    assert (result["verdict"], result["unexplained"][0]["found_by"]) == (UNKNOWN, "audit")
    assert result["audit"]["counts"]["wrong accusations"] == 1


def test_a_round_that_did_not_go_to_its_end_is_unknown() -> None:
    result = judged(None, played=replace(PLAYED, failure="no broker answers"))
    assert (result["verdict"], result["reason"]) == (UNKNOWN, "the round did not go to its end: no broker answers")


def test_rounds_are_judged_together_by_all_three(tmp_path: Path, spark: SparkSession) -> None:
    steps: dict[str, list[tuple[float, Operation]]] = {
        "clean": [(1.0, put(P)), (2.0, put(T)), (3.0, ABORTS), (4.0, put(T)), (5.0, DIES), (6.0, put(P, deletes=True))],
        "divergence": [(1.0, put(P)), (3.0, KILL), (8.0, put(P, deletes=True)), (15.0, START)],
        "stuck": [(1.0, put(T)), (3.0, KILL), (5.0, DIES), (15.0, START)],
    }
    rounds = {RunFolder(tmp_path / name): play_steps(tmp_path / name, *timed) for name, timed in steps.items()}
    verdicts: dict[str, Any] = {name: to_json(result) for name, result in judge_rounds(spark, rounds).items()}
    assert {name: (result["verdict"], named(result)) for name, result in verdicts.items()} == {
        "clean": (CLEAN, []), "divergence": (ANOMALY, [("tombstone-divergence", 2)]), "stuck": (CLEAN, []),
    }  # fmt: skip
    assert all(result["unexplained"] == [] and result["checker_errors"] == {} for result in verdicts.values())
    assert verdicts["divergence"]["findings"][0]["found_by"] == [CLIENTS, CHECKERS]
    assert verdicts["divergence"]["audit"]["counts"]["found"] == 1
    assert {entry["guarantee"]: entry["holds"] for entry in verdicts["clean"]["guarantees"]}["order"] is True
