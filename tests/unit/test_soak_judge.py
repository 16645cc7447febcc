"""The verdict on a round: findings of either judge, losses by power failures, and the comparison with an audit."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from findings import audited_verdict, finding, violated
from metadata_logs import change, partition, read_metadata_log, topic, write_metadata_log
from pyspark.sql import SparkSession
from soaked import ABORTS, DIES, KILL, SMALL, START, P, T, play_steps, put
from test_soak_truth import wrote

from harness.json_codec import to_json
from harness.judge.finding import Finding
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CHECKERS, CLEAN, CLIENTS, UNKNOWN, Doubt
from harness.run_folder.store import RunFolder
from harness.schedules.operations import Operation
from harness.schedules.schedule import Schedule
from harness.soak.causes import diagnose
from harness.soak.causes.cause import GROUPS, RoundEvidence, Symptom
from harness.soak.causes.lost_unsynced import Loss, losses_of, unclean_leaders
from harness.soak.causes.reopened_transaction import reopened
from harness.soak.evidence.client_log import COMMITTED, Transaction, WrittenRecord
from harness.soak.judge.judge_rounds import judge_rounds
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.judge.truth import HIDDEN, NO_VALUE, STATE, STUCK, Truth, Wrong
from harness.soak.play.round import PlayedRound

TP = ("t", 0)
HANGING, REOPENED = "hanging-transaction", "reopened-transaction"
PLAYED = PlayedRound(Schedule((), target="sim-kafka", plan=SMALL))
AUDITED = audited_verdict("t")
WRITTEN = {(TP, 99): WrittenRecord(99, *TP, "z", is_delete=False, transaction=None, offset=99)}
NOTHING = CheckedRound()
UNDELETED = Wrong(STATE, "k", "the value of write 1", "no value", due=0)
GONE = Wrong(STATE, "k", "no value", "the value of write 1", due=0)


def truth_of(wrongs: dict[int, tuple[Wrong, ...]], tp: tuple[str, int] = TP) -> Truth:
    by_replica = {(broker, tp): wrongs.get(broker, ()) for broker in (1, 2, 3)}
    committed, reached = {3: Transaction(3, "id", COMMITTED)}, {(tp, key): 9 for key in ("k", "another")}
    return Truth(by_replica, frozenset(), {replica: {} for replica in by_replica}, committed, WRITTEN, reached=reached)


def truth(*wrongs: Wrong) -> Truth:
    """Return the truth about a partition whose replica on broker 2 has these errors."""
    return truth_of({2: wrongs})


def everywhere(wrong: Wrong, tp: tuple[str, int] = TP) -> Truth:
    return truth_of(dict.fromkeys((1, 2, 3), (wrong,)), tp)


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


def test_a_round_without_anything_wrong_is_clean_and_one_that_was_cut_off_or_is_empty_unknown() -> None:
    result, reason = verdict(truth()), "3 replicas were read in full and agree with the history of clients"
    assert (result["verdict"], result["reason"]) == (CLEAN, reason)
    result = judged(None, played=replace(PLAYED, failure="no broker answers"))
    assert (result["verdict"], result["reason"]) == (UNKNOWN, "the round did not go to its end: no broker answers")
    filled = {(TP, 0): WrittenRecord(1, *TP, "filler", is_delete=False, transaction=None, offset=0, client="filler")}
    for at in ({}, filled):
        result = verdict(replace(truth(), at=at))
        assert (result["verdict"], result["reason"].partition(":")[0]) == (UNKNOWN, "nothing was compared")


@pytest.mark.parametrize(("silence_s", "names"), [(2.3, [("stalled-replica", 3)]), (7.1, [])])
def test_a_replica_that_stays_out_of_the_isr_is_a_finding_unless_brokers_are_slow(
    silence_s: float, names: list[tuple[str, int]]
) -> None:
    times_s = {"waited_s": 140.0, "longest_silence_s": silence_s}
    stall = {"broker": 3, "topic": "t", "partition": 0, "awaited": "waited for broker 3", **times_s}
    result = judged(None, played=replace(PLAYED, failure="timed out", stall=stall))
    assert (result["verdict"], named(result)) == (ANOMALY if names else UNKNOWN, names)


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


@pytest.mark.parametrize(("outcome", "differences"), [("unknown", 0), (COMMITTED, 1)])
def test_clients_need_not_agree_about_a_transaction_of_unknown_outcome(outcome: str, differences: int) -> None:
    at = {(TP, 3): WrittenRecord(1, *TP, "k", is_delete=False, transaction=9, offset=3)}
    actual = replace(truth(), transactions={9: Transaction(9, "id", outcome)}, at=at)
    assert len(verdict(actual, CheckedRound([row("stuck-lso")]))["unexplained"]) == differences


def test_checkers_need_not_agree_about_a_record_of_which_they_do_not_learn() -> None:
    for before, differences in ((True, 0), (False, 1)):
        write = WrittenRecord(1, *TP, "k", is_delete=True, transaction=3, offset=3, before_recreation=before)
        for wrong in (UNDELETED, Wrong(STUCK, "k", "open", "committed", 3, 3)):
            assert len(verdict(replace(truth(wrong), at={(TP, 3): write}))["unexplained"]) == differences


def test_a_transaction_that_hangs_everywhere_is_known_by_clients_alone() -> None:
    """By the logs it may be in progress: only clients know that it has ended."""
    hangs = Wrong(STUCK, "k", "open", "committed", 4, 7, due=0)
    result = verdict(everywhere(hangs))
    assert named(result) == [(HANGING, 1), (HANGING, 2), (HANGING, 3)]
    assert result["unexplained"] == []


def test_what_has_no_name_is_unexplained_and_the_round_unknown_unless_clients_can_name_it() -> None:
    result = verdict(truth(GONE), UNNAMED)
    assert (result["verdict"], result["findings"]) == (UNKNOWN, [])
    assert [entry["found_by"] for entry in result["unexplained"]] == [CLIENTS, CHECKERS]
    unknown_key = replace(truth(), unknown_keys=frozenset({(TP, "k")}))
    assert verdict(unknown_key, UNNAMED)["verdict"] == CLEAN, "no client knows the key"
    carried_out = replace(GONE, counts_aborted=(7,))
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


def test_an_audit_that_accuses_a_right_replica_is_unexplained() -> None:
    audited = replace(AUDITED, findings=(row("tombstone-divergence", broker=1),))
    result = judged(JudgeResults(RoundEvidence(truth()), NOTHING, audited))
    assert (result["verdict"], result["unexplained"][0]["found_by"]) == (UNKNOWN, "audit")
    assert result["audit"]["counts"]["wrong accusations"] == 1


def test_rounds_are_judged_together_by_all_three(tmp_path: Path, spark: SparkSession) -> None:
    steps: dict[str, list[tuple[float, Operation]]] = {
        "clean": [(1.0, put(P)), (2.0, put(T)), (3.0, ABORTS), (4.0, put(T)), (5.0, DIES), (6.0, put(P, deletes=True))],
        "divergence": [(1.0, put(P)), (3.0, KILL), (8.0, put(P, deletes=True)), (15.0, START)],
        "stuck": [(1.0, put(T)), (2.0, put(P)), (3.0, KILL), (5.0, DIES), (15.0, START)],
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


OTHER = ("u", 0)
LOST_UNSYNCED, HOLE, SKIPPED_MARKER, UNCLEAN = (
    "lost-unsynced", "hole-after-power-failure", "skipped-marker", "unclean-election",
)  # fmt: skip
AUDITED_BOTH = audited_verdict("t", "u")
ALONE = Loss(2, TP, 8, 12, was_alone=True)
SKIPPED = Loss(2, TP, 8, 12, is_hole=True)
OF_OUTCOMES = Loss(2, ("__transaction_state", 0), 90, 95, was_alone=True)
OLD = replace(GONE, here="the value of write 0")
OPEN = Wrong(STUCK, "k", "open", "committed", 7, 3, 9)


def event(isr: list[int] | None, **of_segment: Any) -> dict[str, Any]:
    segment = {
        "file": "t-0/00000000000000000000.log", "from_bytes": 500, "to_bytes": 100, "topic": "t", "partition": 0,
        "first_offset": 8, "last_offset": 12, "records": 5, "isr": isr, **of_segment,
    }  # fmt: skip
    side_file = {"file": "t-0/00000000000000000000.snapshot", "from_bytes": 9, "to_bytes": 0}
    return {"f": "power failure", "type": "ok", "broker": 2, "cut": [side_file, segment]}


@pytest.mark.parametrize(("isr", "expected"), [([2], (ALONE,)), ([1, 2], ()), ([1], ()), ([], ()), (None, ())])
def test_a_loss_is_what_a_broker_lost_that_was_alone_in_the_isr(isr: list[int] | None, expected: tuple[Loss]) -> None:
    produced = {"f": "produce", "type": "ok", "offset": 9}
    begun = {"f": "power failure", "type": "invoke"}
    assert losses_of([produced, begun, event(isr)]) == expected


def test_what_a_broker_lost_that_was_elected_uncleanly_or_before_a_segment_that_it_has() -> None:
    (loss,) = losses_of([event([1, 2, 3])], {(2, TP)})
    assert loss == Loss(2, TP, 8, 12, led_uncleanly=True)
    assert str(loss).endswith("lost with the power of broker 2, which had not synced them and was elected uncleanly")
    assert not losses_of([event([1, 2, 3])], {(1, TP), (2, OTHER)})
    assert losses_of([event([1, 2, 3], next_segment=13)]) == (SKIPPED,)
    assert losses_of([event([2], next_segment=13)]) == (replace(ALONE, is_hole=True),)


def test_who_was_elected_uncleanly(tmp_path: Path) -> None:
    log = [
        *(record for name in ("t", "u") for record in (topic(name), partition(name, 0, (1, 2, 3)))),
        change("t", 0, leader=2, isr=(2,), leader_recovery_state=1),
        change("t", 0, isr=(2, 3), leader_recovery_state=0),
        change("t", 0, leader=3),
    ]
    assert unclean_leaders(read_metadata_log(write_metadata_log(tmp_path, log))) == {(2, TP)}
    assert unclean_leaders(None) == set()


def verdict_on(actual: Truth, *losses: Loss, checked: CheckedRound = NOTHING) -> dict[str, Any]:
    return judged(JudgeResults(RoundEvidence(actual, SMALL.brokers, losses), checked, AUDITED_BOTH))


@pytest.mark.parametrize("wrong", [GONE, OPEN, replace(OPEN, kind=HIDDEN)], ids=lambda wrong: wrong.kind)
def test_what_every_replica_lost_is_listed_and_no_anomaly(wrong: Wrong) -> None:
    result = verdict_on(everywhere(wrong), ALONE)
    assert (result["verdict"], result["unexplained"]) == (AS_EXPECTED, [])
    assert named(result) == [(LOST_UNSYNCED, 1), (LOST_UNSYNCED, 2), (LOST_UNSYNCED, 3)]
    says = "offsets 8 to 12 of t-0 were lost with the power of broker 2, which had not synced them and was alone in the"
    assert says in result["findings"][0]["explanation"]
    assert verdict_on(everywhere(wrong))["verdict"] not in {AS_EXPECTED, CLEAN}, "without a loss, it is something else"


def test_a_key_that_was_written_below_all_that_was_lost_is_not_lost_by_it() -> None:
    actual = replace(everywhere(GONE), reached={(TP, "k"): 7})
    assert (verdict_on(actual, ALONE)["verdict"], named(verdict_on(actual, ALONE))) == (UNKNOWN, [])
    other = replace(ALONE, first_offset=5)
    assert named(verdict_on(actual, ALONE, other))[0] == (LOST_UNSYNCED, 1), "each loss counts"


def test_what_the_checkers_call_it_does_not_matter() -> None:
    checked = CheckedRound([row("committed-to-aborted", 1), row("unexplained-divergence", 3)])
    result = verdict_on(everywhere(GONE), ALONE, checked=checked)
    assert (result["verdict"], {name for name, _ in named(result)}) == (AS_EXPECTED, {LOST_UNSYNCED})


@pytest.mark.parametrize(
    "wrongs",
    [
        {2: (OPEN,)},
        {1: (OPEN,), 2: (OPEN,)},
        {1: (OPEN, GONE), 2: (OPEN, GONE), 3: (OPEN, OLD)},
        {1: (OPEN,), 2: (OPEN,), 3: (replace(OPEN, key="another"),)},
    ],
    ids=["one", "two", "differently", "another key"],
)
def test_replicas_that_differ_have_diverged(wrongs: dict[int, tuple[Wrong, ...]]) -> None:
    result = verdict_on(truth_of(wrongs), ALONE, checked=CheckedRound([row("stuck-lso", 2)]))
    assert result["verdict"] == ANOMALY
    assert LOST_UNSYNCED not in {name for name, _ in named(result)}


OFFSETS_LOST = "offsets 124 to 126 of __consumer_offsets-0 were lost"
MARKER_LEFT_OUT = "left out the marker of a transaction of soak-1-t0"
LEFT_OUT = {"broker": 1, "partitions": [["t", 0], ["__consumer_offsets", 0]], "transactional_id": "soak-1-t0"}
OF_OFFSETS = {
    OFFSETS_LOST: RoundEvidence(
        truth_of({}), (1, 2, 3), [Loss(3, ("__consumer_offsets", 0), 124, 126, was_alone=True)]
    ),
    MARKER_LEFT_OUT: RoundEvidence(truth_of({}), (1, 2, 3), skipped=[LEFT_OUT]),
}


@pytest.mark.parametrize(("says", "anomaly", "brokers", "name"), [
    (OFFSETS_LOST, "stuck-lso", (1, 2, 3), LOST_UNSYNCED),
    (OFFSETS_LOST, "stuck-lso", (1, 3), "stuck-lso"),
    (MARKER_LEFT_OUT, "stuck-lso", (1, 2, 3), SKIPPED_MARKER),
    (MARKER_LEFT_OUT, "stuck-lso", (1, 3), "stuck-lso"),
    (MARKER_LEFT_OUT, "tombstone-divergence", (1, 2, 3), "tombstone-divergence"),
])  # fmt: skip
def test_offsets_of_groups_that_every_broker_lost_or_whose_marker_was_left_out(
    says: str, anomaly: str, brokers: tuple[int, ...], name: str
) -> None:
    """Of two partitions, only of the first one."""
    places = [(number, broker) for number in (0, 1) for broker in brokers]
    symptoms = [Symptom(GROUPS, broker, ("__consumer_offsets", number), anomaly=anomaly) for number, broker in places]
    diagnoses = diagnose(OF_OFFSETS[says], symptoms)
    causes = [diagnoses.get(symptom, (symptom.anomaly, "")) for symptom in symptoms]
    assert [cause for cause, _ in causes] == [*[name] * len(brokers), *[anomaly] * len(brokers)]
    assert (says in causes[0][1]) is (name != anomaly)


def test_replicas_that_differ_after_an_unclean_election() -> None:
    actual = truth_of({1: (replace(OPEN, key="another"), GONE), 2: (GONE,), 3: (GONE,)})
    result = verdict_on(actual, replace(ALONE, was_alone=False, led_uncleanly=True))
    assert (result["verdict"], result["unexplained"]) == (ANOMALY, [])
    assert set(named(result)) == {(LOST_UNSYNCED, 1), (LOST_UNSYNCED, 2), (LOST_UNSYNCED, 3), (UNCLEAN, 1)}


@pytest.mark.parametrize(("reached", "name"), [(7, "tombstone-divergence"), (8, UNCLEAN)])
def test_an_unclean_election_does_not_explain_keys_below_the_lost_offsets(reached: int, name: str) -> None:
    alive = replace(OLD, truth=NO_VALUE)
    actual = replace(truth_of({2: (alive,)}), reached={(TP, "k"): reached})
    result = verdict_on(actual, replace(ALONE, was_alone=False, led_uncleanly=True))
    assert named(result) == [(name, 2)]


def test_a_loss_is_of_its_partition_and_one_of_outcomes_of_all_transactions() -> None:
    of_transaction, plain = (everywhere(wrong, OTHER) for wrong in (OPEN, GONE))
    assert verdict_on(of_transaction, ALONE)["verdict"] == ANOMALY
    assert verdict_on(of_transaction, OF_OUTCOMES)["verdict"] == AS_EXPECTED
    assert verdict_on(plain, OF_OUTCOMES)["verdict"] not in {AS_EXPECTED, CLEAN}


def test_a_violated_guarantee_without_a_finding_is_unexplained_but_for_offsets_given_again() -> None:
    checked = CheckedRound(guarantees=[violated("offsets", "another record at offset 9")])
    assert verdict_on(truth_of({}), ALONE, checked=checked)["unexplained"] == []
    assert len(verdict_on(truth_of({}), checked=checked)["unexplained"]) == 1
    checked = CheckedRound(guarantees=[violated("order", "out of order")])
    result = verdict(truth(), checked)
    assert result["verdict"] == UNKNOWN
    assert result["unexplained"][0]["explanation"] == "the guarantee order is violated: out of order"
    stuck = Wrong(STUCK, "k", "open", "aborted", 1, 7, 9)
    both = replace(checked, findings=[row("stuck-lso")])
    assert verdict(truth(stuck), both)["unexplained"] == [], "the finding explains it"


@pytest.mark.parametrize("offset", [8, 12])
def test_a_hole_is_an_anomaly_of_its_broker_alone(offset: int) -> None:
    actual = replace(truth_of({2: (GONE,)}), at={(TP, offset): wrote(1, "k", offset)})
    result = verdict_on(actual, SKIPPED)
    assert (result["verdict"], named(result), result["unexplained"]) == (ANOMALY, [(HOLE, 2)], [])
    assert "offsets 8 to 12 of t-0 were lost with the power of broker 2" in result["reason"]
    assert "has a later segment, where its log continues" in result["reason"]
    assert named(verdict_on(actual, SKIPPED, checked=CheckedRound([row("unexplained-divergence")]))) == [(HOLE, 2)]


@pytest.mark.parametrize(("marker", "name"), [(9, HOLE), (13, "stuck-lso")])
def test_a_transaction_whose_marker_lies_in_a_hole_is_open_by_it(marker: int, name: str) -> None:
    """Found by a soak with the gate, which called it stuck-lso: no compaction had removed that marker."""
    actual = replace(truth_of({2: (OPEN,)}), at={(TP, 7): wrote(1, "k", 7, 3)}, markers={(TP, 3): {marker}})
    assert named(verdict_on(actual, SKIPPED)) == [(name, 2)]


@pytest.mark.parametrize(("broker", "offset"), [(2, 13), (1, 9)])
def test_what_lies_elsewhere_is_of_no_hole(broker: int, offset: int) -> None:
    actual = replace(truth_of({broker: (OPEN,)}), at={(TP, offset): wrote(1, "k", 13)})
    assert named(verdict_on(actual, SKIPPED)) == [("stuck-lso", broker)]
