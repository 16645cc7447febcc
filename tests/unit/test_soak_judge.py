"""The verdict on a round: findings of either judge, findings without a name, and the comparison with an audit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from findings import audited_verdict, finding, violated
from soaked import ABORTS, DIES, KILL, SMALL, START, P, T, play_steps, put

from harness.json_codec import to_json
from harness.judge.soak_verdict import CHECKERS, CLIENTS
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN, Doubt
from harness.run_folder.store import RunFolder
from harness.schedules.schedule import Schedule
from harness.soak.causes.reopened_transaction import Reopened
from harness.soak.judge.judge_rounds import judge_rounds
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.judge.truth import STATE, STUCK, Truth, Wrong
from harness.soak.play.round import PlayedRound

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.judge.finding import Finding
    from harness.schedules.operations.operation import Operation

TP = ("t", 0)
HANGING, REOPENED = "hanging-transaction", "reopened-transaction"
PLAYED = PlayedRound(Schedule((), target="sim-kafka", plan=SMALL))
AUDITED = audited_verdict("t")
UNDELETED = Wrong(STATE, "k", None, None, None, "the value of write 1", "no value", due=0)
LOST = Wrong(STATE, "k", None, None, None, "no value", "the value of write 1", due=0)


def truth(*wrongs: Wrong, broker: int = 2, unknown: frozenset[Any] = frozenset()) -> Truth:
    given = {(one, TP): wrongs if one == broker else () for one in (1, 2, 3)}
    return Truth(given, unknown, {replica: {} for replica in given}, {}, {})


def row(anomaly: str, broker: int = 2) -> Finding:
    return finding(anomaly=anomaly, broker=broker, offset=3, key={"text": "k"}, explanation=f"it is {anomaly}")


def verdict(known: Truth, checked: CheckedRound = CheckedRound(), expected: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: B008
    return judged(JudgeResults(known, checked, AUDITED), expected)


def judged(
    results: JudgeResults | None, expected: Collection[str] = (), played: PlayedRound = PLAYED
) -> dict[str, Any]:
    """Return the verdict on a round as its file has it."""
    content: dict[str, Any] = to_json(verdict_of(played, results, expected))
    return content


def doubt(broker: int, reason: str) -> Doubt:
    return Doubt(broker=broker, topic="t", partition=0, kind="contradiction", reason=reason)


def test_a_round_without_anything_wrong_is_clean() -> None:
    assert (verdict(truth())["verdict"], verdict(truth())["reason"]) == (
        CLEAN, "3 replicas were read in full and agree with the history of clients",
    )  # fmt: skip


def test_both_judges_name_one_finding() -> None:
    given = verdict(truth(UNDELETED, UNDELETED), CheckedRound([row("tombstone-divergence")]))
    assert given["verdict"] == ANOMALY
    (found,) = given["findings"]
    assert (found["anomaly"], found["broker"], found["count"]) == ("tombstone-divergence", 2, 2)
    assert found["found_by"] == [CLIENTS, CHECKERS]
    assert given["unexplained"] == []


def test_what_only_one_judge_calls_wrong_is_a_finding_and_unexplained() -> None:
    for known, checked, by in (
        (truth(UNDELETED), CheckedRound(), CLIENTS),
        (truth(), CheckedRound([row("tombstone-divergence")]), CHECKERS),
    ):
        given = verdict(known, checked)
        assert given["verdict"] == ANOMALY
        assert given["findings"][0]["found_by"] == [by]
        assert [one["found_by"] for one in given["unexplained"]] == [by]
        assert "nothing wrong with this replica" in given["unexplained"][0]["explanation"]


def test_a_transaction_that_hangs_everywhere_is_known_by_clients_alone() -> None:
    """By the logs it may still go on: only clients know that it has ended."""
    hangs = Wrong(STUCK, "k", 4, 7, None, "open", "committed", due=0)
    known = truth()
    everywhere = replace(known, wrongs=dict.fromkeys(known.wrongs, (hangs,)))
    given = verdict(everywhere)
    assert [(one["anomaly"], one["broker"]) for one in given["findings"]] == [(HANGING, one) for one in (1, 2, 3)]
    assert given["unexplained"] == []


def test_what_has_no_name_is_unexplained_and_the_round_unknown() -> None:
    given = verdict(truth(LOST), CheckedRound([row("unexplained-divergence")]))
    assert (given["verdict"], given["findings"]) == (UNKNOWN, [])
    assert [one["found_by"] for one in given["unexplained"]] == [CLIENTS, CHECKERS]


def test_a_key_that_no_client_knows_is_not_unexplained() -> None:
    given = verdict(truth(unknown=frozenset({(TP, "k")})), CheckedRound([row("unexplained-divergence")]))
    assert given["verdict"] == CLEAN


def test_what_clients_can_name_is_not_unexplained() -> None:
    carried_out = replace(LOST, counts_aborted=(7,))
    known = replace(truth(carried_out), followed={TP: {7: {"committed"}}})
    given = verdict(known, CheckedRound([row("unexplained-divergence")]))
    assert [(one["anomaly"], one["found_by"]) for one in given["findings"]] == [("aborted-to-committed", [CLIENTS])]
    assert given["unexplained"] == []
    assert verdict(truth(LOST), CheckedRound([row("unexplained-divergence")]))["findings"] == []


def test_what_lies_below_the_log_start_is_no_finding() -> None:
    """Compaction removes a marker whose transaction lies below the log start, and leaves its records on disk."""
    known = replace(truth(), log_starts={(2, TP): 4})
    assert verdict(known, CheckedRound([row("stuck-lso")]))["verdict"] == CLEAN
    assert verdict(replace(known, log_starts={(2, TP): 3}), CheckedRound([row("stuck-lso")]))["verdict"] == ANOMALY


def test_expected_findings_are_listed_and_tolerated() -> None:
    known, checked = truth(UNDELETED), CheckedRound([row("tombstone-divergence")])
    given = verdict(known, checked, ("tombstone-divergence",))
    assert given["verdict"] == AS_EXPECTED
    assert given["reason"].endswith("agree with the history of clients, but for known findings: 1 tombstone-divergence")
    assert [one["anomaly"] for one in given["findings"]] == ["tombstone-divergence"]
    assert verdict(known, checked, ("stuck-lso",))["verdict"] == ANOMALY


@pytest.mark.parametrize(
    "checked",
    [
        CheckedRound(raised={"doubts": "ValueError: no"}),
        CheckedRound(doubts=[doubt(1, "it contradicts itself")]),
    ],
)
def test_what_could_not_be_judged_forbids_clean(checked: CheckedRound) -> None:
    assert verdict(truth(), checked)["verdict"] == UNKNOWN


def test_a_transaction_that_is_open_again_is_a_finding_and_no_doubt() -> None:
    reason = "the broker says that producer 3 has an open transaction, its log that it has none"
    checked = CheckedRound(doubts=[doubt(2, reason)])
    assert judged(JudgeResults(truth(), checked, AUDITED))["verdict"] == UNKNOWN
    known = JudgeResults(truth(), checked, AUDITED, reopened=[Reopened(2, ("t", 0), 3, 5, 9)])
    given = judged(known)
    assert (given["verdict"], [one["anomaly"] for one in given["findings"]]) == (ANOMALY, [REOPENED])
    assert judged(known, [REOPENED])["verdict"] == AS_EXPECTED


def test_a_guarantee_that_is_violated_without_a_finding_is_unexplained() -> None:
    checked = CheckedRound(guarantees=[violated("order", "out of order")])
    given = verdict(truth(), checked)
    assert given["verdict"] == UNKNOWN
    assert given["unexplained"][0]["explanation"] == "the guarantee order is violated: out of order"
    stuck = Wrong(STUCK, "k", 1, 7, 9, "open", "aborted")
    both = replace(checked, findings=[row("stuck-lso")])
    assert verdict(truth(stuck), both)["unexplained"] == [], "the finding explains it"


def test_an_audit_that_accuses_a_right_replica_is_unexplained() -> None:
    audited = replace(AUDITED, findings=(row("tombstone-divergence", broker=1),))
    given = judged(JudgeResults(truth(), CheckedRound(), audited))
    assert given["verdict"] == UNKNOWN
    assert given["unexplained"][0]["found_by"] == "audit"
    assert given["audit"]["counts"]["wrong accusations"] == 1


def test_a_round_that_did_not_go_to_its_end_is_unknown() -> None:
    given = judged(None, played=replace(PLAYED, failure="no broker answers"))
    assert (given["verdict"], given["reason"]) == (UNKNOWN, "the round did not go to its end: no broker answers")


def test_rounds_are_judged_together_by_all_three(tmp_path: Path, spark: SparkSession) -> None:
    steps: dict[str, list[tuple[float, Operation]]] = {
        "clean": [(1.0, put(P)), (2.0, put(T)), (3.0, ABORTS), (4.0, put(T)), (5.0, DIES), (6.0, put(P, deletes=True))],
        "divergence": [(1.0, put(P)), (3.0, KILL), (8.0, put(P, deletes=True)), (15.0, START)],
        "stuck": [(1.0, put(T)), (3.0, KILL), (5.0, DIES), (15.0, START)],
    }
    rounds = {RunFolder(tmp_path / name): play_steps(tmp_path / name, *timed) for name, timed in steps.items()}
    verdicts = {name: to_json(given) for name, given in judge_rounds(spark, rounds).items()}
    found = {
        name: [(one["anomaly"], one["broker"], one["found_by"]) for one in given["findings"]]
        for name, given in verdicts.items()
    }
    assert found == {
        "clean": [],
        "divergence": [("tombstone-divergence", 2, [CLIENTS, CHECKERS])],
        "stuck": [],
    }
    assert {name: given["verdict"] for name, given in verdicts.items()} == {
        "clean": CLEAN, "divergence": ANOMALY, "stuck": CLEAN,
    }  # fmt: skip
    assert all(given["unexplained"] == [] and given["checker_errors"] == {} for given in verdicts.values())
    assert verdicts["divergence"]["audit"]["counts"]["found"] == 1
    assert {one["guarantee"]: one["holds"] for one in verdicts["clean"]["guarantees"]}["order"] is True
