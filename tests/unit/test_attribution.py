"""Literal disagreements: an accusation where a replica is shown to be wrong, else what each replica serves."""

import json
from dataclasses import replace
from typing import Any

import pytest

from checkers.attribution.coverage import EpochCoverage
from checkers.finding import UNEXPLAINED_DIVERGENCE as UNEXPLAINED
from harness.audit.explain.advice import Shell, with_advice
from harness.audit.explain.attribution import Disputes, attribute
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.broker_files.metadata_log.history import PartitionHistory, PartitionState
from harness.escape import in_sentence
from harness.json_codec import to_json

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"
ALL = (1, 2, 3)
PLACE = ("t", 0)


def disagreement(
    anomaly: str, broker: int = 2, offset: int = 5, *, topic: str = "t", key: bytes = b"K", proven: bool = False,
    **witness: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a row as checkers return it."""
    return {
        "run": "r", "topic": topic, "partition": 0, "broker": broker, "anomaly": anomaly, "candidates": [],
        "offset": offset, "key": bytearray(key), "producer_id": 7, "effect": "visible", "proven": proven,
        "explanation": f"record {in_sentence(key)} is wrong", "witness": json.dumps(witness),
    }  # fmt: skip


def serves(
    broker: int, offset: int | None, *, disputed: int = 5, tombstone: bool = False, belief: str | None = None
) -> dict[str, Any]:
    """Return what a replica has of key K; ``belief``: of the disputed record, which is in a transaction then."""
    last = None if offset is None else {"offset": offset, "tombstone": tombstone, "leader_epoch": 0}
    has_disputed = belief is not None or offset == disputed
    at = {
        "belief": belief or "committed", "transactional": belief is not None, "leader_epoch": 0,
        "decided_in_leader_epoch": 0 if belief in {"committed", "aborted"} else None,
    }  # fmt: skip
    return {
        "topic": "t", "partition": 0, "broker": broker, "key": b"K", "disputed": disputed, "last": last,
        "at": at if has_disputed else None, "open_from": disputed if belief == "open" else None,
    }  # fmt: skip


def received_by(*brokers: int) -> EpochCoverage:
    """Return that these brokers were in the ISR all the time, and broker 0, which is not one of them, led."""
    state = PartitionState(1, 0, 0, 0, ALL, (0, *brokers))
    return EpochCoverage(PartitionHistory("id", since_creation=True, states=(state,)), {})


def attributed(
    rows: list[dict[str, Any]],
    *states: dict[str, Any],
    coverage: EpochCoverage | None = None,
    has_transactions: bool = True,
    never: bool = False,
) -> list[dict[str, Any]]:
    replica = {"topic": "t", "partition": 0, "log_start": 0, "has_transactions": has_transactions}
    replicas = [{**replica, "broker": broker} for broker in ALL]
    knowledge = MetadataEvidence({PLACE: coverage or EpochCoverage()}, is_without_transactions=never)
    findings = with_advice(attribute(rows, Disputes.of(states, replicas, knowledge)), {PLACE: ALL})
    return [to_json(finding) for finding in findings]


def accused(findings: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(result["anomaly"], result["broker"], result["candidates"]) for result in findings if result["decided"]]


def rebuilds(finding: dict[str, Any]) -> bool:
    return "reassign" in " ".join((finding["do"], *finding["commands"]))


ABORTED_DELETE = [disagreement(DIVERGED, 1, removed_by_broker=2), disagreement(DIVERGED, 3, removed_by_broker=2)]
"""Brokers 1 and 3 serve a value that broker 2 has removed; a checker describes brokers 1 and 3."""
VALUE_ON_1_AND_3 = (serves(1, 5), serves(3, 5))


def test_who_carried_out_an_aborted_delete_is_accused_and_not_who_kept_the_value() -> None:
    (result,) = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, coverage=received_by(1, 3))
    assert accused([result]) == [(POISON, 2, [])]
    assert result["right"] == [1, 3]
    assert result["decided_by"] == [f"broker {broker} was in the ISR throughout leader epoch 0" for broker in (1, 3)]
    text = "key K: this broker serves nothing, and brokers 1, 3 rightly serve the value"
    assert result["explanation"].startswith(text)


@pytest.mark.parametrize("never", [False, True])
def test_without_a_witness_one_finding_says_what_each_serves_and_no_command_removes_a_copy(*, never: bool) -> None:
    """The logs have transactions, even if the cluster has no ``__transaction_state``."""
    (result,) = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, never=never)
    assert not result["decided"]
    served = {"the value of offset 5": [1, 3], "nothing": [2]}
    assert result["disagree"] == [{"brokers": brokers, "serves": text} for text, brokers in served.items()]
    assert "cannot tell which replica is wrong" in result["explanation"]
    assert "pause compaction of the topic" in result["do"]
    words = [command.split()[0] for command in result["commands"]]
    assert words == ["BOOTSTRAP=HOST:PORT", "CONFIG=/dev/null", "kafka-configs.sh", "#"]
    assert not rebuilds(result)


def test_an_undecided_finding_says_which_evidence_is_missing() -> None:
    t_ms = 1_795_757_520_000
    isrs = {0: ALL, t_ms: (2,), t_ms + 1000: ALL, t_ms + 5000: (1, 3), t_ms + 9000: ALL}
    states = tuple(PartitionState(1, 0, 0, 0, ALL, (0, *isr), time_ms=time_ms) for time_ms, isr in isrs.items())
    coverage = EpochCoverage(PartitionHistory("id", since_creation=True, states=states), {})
    (result,) = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, coverage=coverage)
    assert (
        "no replica is shown to have received every record since then: brokers 1, 3: out of the ISR from 2026-11-27 "
        "05:32:00 UTC until 2026-11-27 05:32:01 UTC; broker 2: out of the ISR from 2026-11-27 05:32:05 UTC until "
        "2026-11-27 05:32:09 UTC. If broker 1 is wrong"
    ) in result["explanation"]
    (nothing_known,) = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3)
    assert "brokers 1, 2, 3: no history in the metadata log" in nothing_known["explanation"]


def test_who_serves_an_aborted_value_is_named_so_where_the_right_replicas_have_an_older_one() -> None:
    """The witnesses have removed the aborted record: nothing but the older value shows its outcome."""
    rows = [disagreement(POISON, 2, believed_here="committed", older_value_there_at=3)]
    states = (serves(1, 3), serves(2, 5, belief="committed"), serves(3, 3))
    (result,) = attributed(rows, *states, coverage=received_by(1, 3))
    assert accused([result]) == [(POISON, 2, [])]
    assert result["right"] == [1, 3]


def test_who_kept_the_value_is_accused_by_a_witness_that_removed_it_or_where_there_are_only_deletes() -> None:
    findings = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, coverage=received_by(2))
    assert [(name, broker) for name, broker, _ in accused(findings)] == [(DIVERGED, 1), (DIVERGED, 3)]
    findings = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, has_transactions=False, never=True)
    assert accused(findings) == [(DIVERGED, 1, []), (DIVERGED, 3, [])]
    assert findings[0]["assumptions"] == ["no replica lost records in another way"]


def test_a_lost_value_without_any_transaction_is_unexplained() -> None:
    rows = [disagreement(DIVERGED, 1, removed_by_broker=2)]
    findings = attributed(rows, serves(1, 5), serves(3, 5), coverage=received_by(1), has_transactions=False)
    assert accused(findings) == [(UNEXPLAINED, 2, [])]


@pytest.mark.parametrize(("witness", "expected"), [(2, (POISON, 1)), (1, (HIDDEN, 2)), (3, (POISON, 1))])
def test_the_outcome_of_a_transaction_is_that_of_who_received_it(witness: int, expected: tuple[str, int]) -> None:
    rows = [disagreement(POISON, 1, believed_here="committed")]
    third = serves(3, None, belief="aborted") if witness != 1 else serves(3, 5, belief="committed")
    states = (serves(1, 5, belief="committed"), serves(2, None, belief="aborted"), third)
    findings = attributed(rows, *states, coverage=received_by(witness))
    assert [(name, broker) for name, broker, _ in accused(findings)] == [expected]


def test_nothing_is_decided_where_nobody_received_everything_or_those_who_did_differ() -> None:
    rows = [disagreement(POISON, 1, believed_here="committed")]
    (result,) = attributed(rows, serves(1, 5, belief="committed"), serves(2, None, belief="aborted"))
    assert (result["decided"], result["anomaly"]) == (False, POISON)
    (result,) = attributed(ABORTED_DELETE, *VALUE_ON_1_AND_3, coverage=received_by(1, 2))
    assert "replicas that received every record differ" in result["explanation"]


def test_a_delete_in_a_transaction_that_was_aborted_accuses_who_has_it_committed() -> None:
    rows = [disagreement(DIVERGED, 1, deleted_at=9)]
    delete = serves(2, 9, disputed=9, tombstone=True, belief="committed")
    at_delete = [serves(1, 5, disputed=9), delete, serves(3, 5, disputed=9, belief="aborted")]
    findings = attributed(rows, serves(1, 5), serves(3, 5), *at_delete, coverage=received_by(3))
    assert accused(findings) == [(POISON, 2, [])]


def test_what_the_logs_prove_needs_no_witness_but_advice_names_only_leaders_that_are_right() -> None:
    rows = [disagreement(DIVERGED, 1, proven=True, deleted_at=9)]
    (result,) = attributed(rows, serves(1, 5), serves(2, 9, tombstone=True))
    assert accused([result]) == [(DIVERGED, 1, [])]
    assert result["right"] == [2, 3]
    assert '"replicas": [2, 3]' in " ".join(result["commands"])
    paused = "min.cleanable.dirty.ratio=1,max.compaction.lag.ms=9223372036854775807"
    assert result["commands"][2].endswith(f"--add-config {paused}")


INHERITED = "--delete-config min.cleanable.dirty.ratio,max.compaction.lag.ms"


class TestShell:
    """The printed commands carry the login, and give a topic its own settings back."""

    def commands(self, **shell: Any) -> list[str]:
        row = disagreement(DIVERGED, 1, proven=True, deleted_at=9)
        states = Disputes.of([serves(1, 5), serves(2, 9, tombstone=True)], (), MetadataEvidence())
        finding = replace(attribute([row], states)[0], right=(2, 3))
        (advised,) = with_advice([finding], {PLACE: ALL}, Shell(**shell))
        return list(advised.commands or ())

    def test_a_login_is_in_each_of_them(self) -> None:
        bootstrap, config, *commands = self.commands(bootstrap="h:1", config="my login.properties")
        assert (bootstrap, config) == ("BOOTSTRAP=h:1", "CONFIG='my login.properties'")
        for command in (command for command in commands if not command.startswith("echo ")):
            option = "--admin.config" if command.startswith("kafka-leader-election.sh") else "--command-config"
            assert f' --bootstrap-server "$BOOTSTRAP" {option} "$CONFIG" ' in command

    def test_copies_are_throttled_and_the_folder_is_saved_before_it_is_removed(self) -> None:
        commands = self.commands()
        moves = [command for command in commands if " --execute" in command]
        assert all(command.endswith(" --throttle 50000000") for command in moves)
        assert commands.index(next(c for c in commands if "cp -a" in c)) < commands.index(moves[0])

    @pytest.mark.parametrize(
        ("own", "expected"),
        [
            (None, [f"{INHERITED}  # or --add-config with the values that the topic had"]),
            ({}, [INHERITED]),
            (
                {"min.cleanable.dirty.ratio": "0.1", "segment.ms": "5"},
                ["--delete-config max.compaction.lag.ms", "--add-config min.cleanable.dirty.ratio=0.1"],
            ),
        ],
    )
    def test_the_settings_that_were_found_are_restored(self, own: dict[str, str] | None, expected: list[str]) -> None:
        commands = self.commands(own_settings=None if own is None else {PLACE[0]: own})
        restoring = [command.partition("--entity-name t ")[2] for command in commands[-len(expected) :]]
        assert restoring == expected


LOST_VALUE = (disagreement(UNEXPLAINED, 1, offset=55, proven=True, last_committed_at=55, last_here_at=7),)
THREE_STATES = (serves(1, 7, disputed=55), serves(2, 55, disputed=55))
"""Seen in a soak of 4.4.0: broker 3 serves nothing, for the key was deleted at 96, and its tombstone is gone."""


def test_an_overwritten_value_is_wrong_and_who_serves_the_later_one_is_right_if_nobody_serves_another() -> None:
    (result,) = attributed([*LOST_VALUE], *THREE_STATES)
    assert accused([result]) == [(UNEXPLAINED, 1, [])]
    assert result["right"] == []
    assert not rebuilds(result)
    (result,) = attributed([*LOST_VALUE], *THREE_STATES, serves(3, 55, disputed=55))
    assert result["right"] == [2, 3]
    rows = [disagreement(DIVERGED, 1, proven=True, deleted_at=9)]
    (result,) = attributed(rows, serves(1, 5), serves(2, 9, tombstone=True), serves(3, 12))
    assert (result["broker"], result["right"]) == (1, []), "a value after the delete"


@pytest.mark.parametrize("complete", [2, 3])
def test_of_different_later_states_a_complete_replica_has_the_right_one(complete: int) -> None:
    (result,) = attributed([*LOST_VALUE], *THREE_STATES, coverage=received_by(complete))
    assert (result["broker"], result["right"]) == (1, [complete])


def test_a_stuck_replica_is_not_copied_anew_while_nobody_is_shown_to_be_right() -> None:
    rows = [disagreement(STUCK, 2, proven=True)]
    states = (serves(1, 9), serves(2, None, belief="open"), serves(3, 9))
    (result,) = attributed(rows, *states)
    assert accused([result]) == [(STUCK, 2, [])]
    assert not rebuilds(result)
    (result,) = attributed(rows, *states, coverage=received_by(1))
    assert '"replicas": [1, 3]' in " ".join(result["commands"])


def test_one_undecided_disagreement_keeps_every_copy_of_the_partition() -> None:
    decided = disagreement(DIVERGED, 1, offset=2, proven=True, deleted_at=3)
    findings = attributed([decided, *ABORTED_DELETE], *VALUE_ON_1_AND_3, serves(1, 2, disputed=2))
    assert [result["decided"] for result in findings] == [True, False]
    assert not any(map(rebuilds, findings))
    assert "another disagreement of this partition is not decided" in findings[0]["do"]
