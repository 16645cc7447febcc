"""Effects of power failures: a loss that Kafka's contract allows is not an anomaly; a hole in a replica is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from findings import audited_verdict, violated
from metadata_logs import change, partition, read_metadata_log, topic, write_metadata_log
from soaked import SMALL
from test_soak_judge import NOTHING, judged, named, row
from test_soak_truth import wrote

from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN
from harness.soak.causes import diagnose
from harness.soak.causes.cause import GROUPS, RoundEvidence, Symptom
from harness.soak.causes.lost_unsynced import Loss, losses_of, unclean_leaders
from harness.soak.evidence.client_log import COMMITTED, Transaction
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults
from harness.soak.judge.truth import HIDDEN, STATE, STUCK, Truth, Wrong

TP, OTHER = ("t", 0), ("u", 0)
LOST, HOLE, SKIPPED_MARKER, UNCLEAN = (
    "lost-unsynced", "hole-after-power-failure", "skipped-marker", "unclean-election",
)  # fmt: skip
AUDITED = audited_verdict("t", "u")
ALONE = Loss(2, TP, 8, 12, was_alone=True)
SKIPPED = Loss(2, TP, 8, 12, is_hole=True)
OF_OUTCOMES = Loss(2, ("__transaction_state", 0), 90, 95, was_alone=True)
GONE = Wrong(STATE, "k", "no value", "the value of write 1", due=0)
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


def test_a_loss_is_what_a_broker_lost_that_was_elected_uncleanly() -> None:
    (loss,) = losses_of([event([1, 2, 3])], {(2, TP)})
    assert loss == Loss(2, TP, 8, 12, led_uncleanly=True)
    assert str(loss).endswith("lost with the power of broker 2, which had not synced them and was elected uncleanly")
    assert not losses_of([event([1, 2, 3])], {(1, TP), (2, OTHER)})


def test_who_was_elected_uncleanly(tmp_path: Path) -> None:
    log = [
        *(record for name in ("t", "u") for record in (topic(name), partition(name, 0, (1, 2, 3)))),
        change("t", 0, leader=2, isr=(2,), leader_recovery_state=1),
        change("t", 0, isr=(2, 3), leader_recovery_state=0),
        change("t", 0, leader=3),
    ]
    assert unclean_leaders(read_metadata_log(write_metadata_log(tmp_path, log))) == {(2, TP)}
    assert unclean_leaders(None) == set()


def test_a_hole_is_what_a_broker_lost_before_a_segment_that_it_has() -> None:
    assert losses_of([event([1, 2, 3], next_segment=13)]) == (SKIPPED,)
    assert losses_of([event([2], next_segment=13)]) == (replace(ALONE, is_hole=True),)


def truth(wrongs: dict[int, tuple[Wrong, ...]], tp: tuple[str, int] = TP) -> Truth:
    by_replica = {(broker, tp): wrongs.get(broker, ()) for broker in (1, 2, 3)}
    committed = {3: Transaction(3, "id", COMMITTED)}
    return Truth(by_replica, frozenset(), {replica: {} for replica in by_replica}, committed, {})


def everywhere(wrong: Wrong, tp: tuple[str, int] = TP) -> Truth:
    return truth(dict.fromkeys((1, 2, 3), (wrong,)), tp)


def verdict(actual: Truth, *losses: Loss, checked: CheckedRound = NOTHING) -> dict[str, Any]:
    return judged(JudgeResults(RoundEvidence(actual, SMALL.brokers, losses), checked, AUDITED))


@pytest.mark.parametrize("wrong", [GONE, OPEN, replace(OPEN, kind=HIDDEN)], ids=lambda wrong: wrong.kind)
def test_what_every_replica_lost_is_listed_and_no_anomaly(wrong: Wrong) -> None:
    result = verdict(everywhere(wrong), ALONE)
    assert (result["verdict"], result["unexplained"]) == (AS_EXPECTED, [])
    assert named(result) == [(LOST, 1), (LOST, 2), (LOST, 3)]
    says = "offsets 8 to 12 of t-0 were lost with the power of broker 2, which had not synced them and was alone in the"
    assert says in result["findings"][0]["explanation"]
    assert verdict(everywhere(wrong))["verdict"] not in {AS_EXPECTED, CLEAN}, "without a loss, it is something else"


def test_what_the_checkers_call_it_does_not_matter() -> None:
    checked = CheckedRound([row("committed-to-aborted", 1), row("unexplained-divergence", 3)])
    result = verdict(everywhere(GONE), ALONE, checked=checked)
    assert (result["verdict"], {name for name, _ in named(result)}) == (AS_EXPECTED, {LOST})


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
    result = verdict(truth(wrongs), ALONE, checked=CheckedRound([row("stuck-lso", 2)]))
    assert result["verdict"] == ANOMALY
    assert LOST not in {name for name, _ in named(result)}


def offset_names(anomaly: str, brokers: tuple[int, ...], evidence: RoundEvidence) -> tuple[list[tuple[int, str]], str]:
    """Return partition and name of each wrong offset of two partitions, and the words of the first one's cause."""
    places = [(number, broker) for number in (0, 1) for broker in brokers]
    symptoms = [Symptom(GROUPS, broker, ("__consumer_offsets", number), anomaly=anomaly) for number, broker in places]
    diagnoses = diagnose(evidence, symptoms)
    causes = [diagnoses.get(symptom, (symptom.anomaly, "")) for symptom in symptoms]
    return [(symptom.partition[1], name) for symptom, (name, _) in zip(symptoms, causes, strict=True)], causes[0][1]


@pytest.mark.parametrize(("brokers", "name"), [((1, 2, 3), LOST), ((1, 3), "stuck-lso")])
def test_offsets_of_groups_that_every_broker_lost(brokers: tuple[int, ...], name: str) -> None:
    loss = Loss(3, ("__consumer_offsets", 0), 124, 126, was_alone=True)
    names, words = offset_names("stuck-lso", brokers, RoundEvidence(truth({}), (1, 2, 3), [loss]))
    assert names == [*((0, name) for _ in brokers), *((1, "stuck-lso") for _ in brokers)]
    assert ("offsets 124 to 126 of __consumer_offsets-0 were lost" in words) is (name == LOST)


@pytest.mark.parametrize(
    ("anomaly", "brokers", "name"),
    [
        ("stuck-lso", (1, 2, 3), SKIPPED_MARKER),
        ("stuck-lso", (1, 3), "stuck-lso"),
        ("tombstone-divergence", (1, 2, 3), "tombstone-divergence"),
    ],
)
def test_offsets_of_groups_in_a_transaction_whose_marker_was_left_out(
    anomaly: str, brokers: tuple[int, ...], name: str
) -> None:
    line = {"broker": 1, "partitions": [["t", 0], ["__consumer_offsets", 0]], "transactional_id": "soak-1-t0"}
    names, words = offset_names(anomaly, brokers, RoundEvidence(truth({}), (1, 2, 3), skipped=[line]))
    assert names == [*((0, name) for _ in brokers), *((1, anomaly) for _ in brokers)]
    assert ("left out the marker of a transaction of soak-1-t0" in words) is (name == SKIPPED_MARKER)


def test_replicas_that_differ_after_an_unclean_election() -> None:
    actual = truth({1: (replace(OPEN, key="another"), GONE), 2: (GONE,), 3: (GONE,)})
    result = verdict(actual, replace(ALONE, was_alone=False, led_uncleanly=True))
    assert (result["verdict"], result["unexplained"]) == (ANOMALY, [])
    assert set(named(result)) == {(LOST, 1), (LOST, 2), (LOST, 3), (UNCLEAN, 1)}


def test_a_loss_is_of_its_partition_and_one_of_outcomes_of_all_transactions() -> None:
    of_transaction, plain = (everywhere(wrong, OTHER) for wrong in (OPEN, GONE))
    assert verdict(of_transaction, ALONE)["verdict"] == ANOMALY
    assert verdict(of_transaction, OF_OUTCOMES)["verdict"] == AS_EXPECTED
    assert verdict(plain, OF_OUTCOMES)["verdict"] not in {AS_EXPECTED, CLEAN}


def test_offsets_that_were_given_again_are_no_violation() -> None:
    checked = CheckedRound(guarantees=[violated("offsets", "another record at offset 9")])
    assert verdict(truth({}), ALONE, checked=checked)["unexplained"] == []
    assert len(verdict(truth({}), checked=checked)["unexplained"]) == 1


@pytest.mark.parametrize("offset", [8, 12])
def test_a_hole_is_an_anomaly_of_its_broker_alone(offset: int) -> None:
    actual = replace(truth({2: (GONE,)}), at={(TP, offset): wrote(1, "k", offset)})
    result = verdict(actual, SKIPPED)
    assert (result["verdict"], named(result), result["unexplained"]) == (ANOMALY, [(HOLE, 2)], [])
    assert "offsets 8 to 12 of t-0 were lost with the power of broker 2" in result["reason"]
    assert "has a later segment, where its log continues" in result["reason"]
    assert named(verdict(actual, SKIPPED, checked=CheckedRound([row("unexplained-divergence")]))) == [(HOLE, 2)]


@pytest.mark.parametrize(("marker", "name"), [(9, HOLE), (13, "stuck-lso")])
def test_a_transaction_whose_marker_lies_in_a_hole_is_open_by_it(marker: int, name: str) -> None:
    """Found by a soak with the gate, which called it stuck-lso: no compaction had removed that marker."""
    actual = replace(truth({2: (OPEN,)}), at={(TP, 7): wrote(1, "k", 7, 3)}, markers={(TP, 3): {marker}})
    assert named(verdict(actual, SKIPPED)) == [(name, 2)]


@pytest.mark.parametrize(("broker", "offset"), [(2, 13), (1, 9)])
def test_what_lies_elsewhere_is_of_no_hole(broker: int, offset: int) -> None:
    actual = replace(truth({broker: (OPEN,)}), at={(TP, offset): wrote(1, "k", 13)})
    assert named(verdict(actual, SKIPPED)) == [("stuck-lso", broker)]
