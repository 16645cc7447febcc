"""Suspicious replicas before any data is read, and healthy ones: replicas that lag, transactions that are open."""

import re
from dataclasses import replace
from typing import Any

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.clock import NOW_MS

from harness.audit.live.broker_reports import NOTHING_SEEN
from harness.audit.live.prefilter import HANGING_TRANSACTION, STUCK_LSO, UNKNOWN_MS, Prefiltered, prefilter
from harness.errors import UsageError
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription

PRODUCER, EPOCH, FIRST = 7, 3, 10
OPEN = (OpenTransaction(PRODUCER, EPOCH, FIRST, last_time_ms=0),)
HOLDS = Held(high_watermark=20, last_stable_offset=FIRST, open=OPEN)
PAST = Held(high_watermark=20, last_stable_offset=20)
WORD = TransactionDescription(1, "tx", "Ongoing", PRODUCER, EPOCH, 1000, frozenset({TP}))


def filtered(
    replicas: dict[int, list[Held]],
    words: tuple[TransactionDescription, ...] = (),
    absent: tuple[int, ...] = (),
    **leader: Any,
) -> Prefiltered:
    """Filter one partition; the first broker leads and coordinates, and has the fields ``leader``."""
    fields = {min(replicas): {"words": list(words), **leader}}
    brokers = {number: FakeBroker({TP: list(states)}, **fields.get(number, {})) for number, states in replicas.items()}
    return filtered_of(brokers, absent)


def filtered_of(brokers: dict[int, FakeBroker], absent: tuple[int, ...] = ()) -> Prefiltered:
    return prefilter(audited(brokers, absent=absent))


def test_a_quiet_cluster_is_looked_at_and_nothing_is_reported() -> None:
    result = filtered({1: [PAST], 2: [PAST], 3: [PAST]})
    assert (result.suspicions, result.notes) == ((), ())
    assert result.statuses.replicas[2, TP].log_end == 20


LAGS = replace(HOLDS, high_watermark=12)
ENDED = replace(PAST, high_watermark=21, last_stable_offset=21)
COMPLETE = (replace(WORD, state="CompleteCommit"),)
UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "unheard-of")


@pytest.mark.parametrize(("replicas", "words"), [
    ({1: [PAST], 2: [LAGS, LAGS, LAGS, PAST]}, ()), ({1: [replace(PAST, log_start=11)], 2: [HOLDS]}, (WORD,)),
    ({1: [HOLDS], 2: [Held(high_watermark=20, last_stable_offset=FIRST)]}, (WORD,)),
    ({1: [HOLDS, ENDED], 2: [HOLDS, HOLDS, ENDED]}, COMPLETE), ({1: [PAST, HOLDS]}, ()),
    *(({1: [HOLDS], 2: [HOLDS]}, (replace(WORD, state=state),)) for state in UNFINISHED),
], ids=[
    "the follower has the marker a moment later", "a log that starts later decides nothing",
    "a last stable offset that lags is no decision", "ended meanwhile", "began after coordinators were asked",
    *UNFINISHED,
])  # fmt: skip
def test_what_is_not_suspicious(replicas: dict[int, list[Held]], words: tuple[TransactionDescription, ...]) -> None:
    assert filtered(replicas, words).suspicions == ()


LATER = Held(20, 15, open=(OpenTransaction(PRODUCER, EPOCH + 2, 15),))
WORD_OF_LATER = (replace(WORD, producer_epoch=EPOCH + 2),)


@pytest.mark.parametrize(("replicas", "words", "ended_on"), [
    ({1: [PAST], 2: [HOLDS], 3: [PAST]}, COMPLETE, (1, 3)),
    ({1: [LATER], 2: [HOLDS]}, WORD_OF_LATER, (1,)),
    ({1: [PAST], 2: [LAGS, LAGS, LAGS, HOLDS]}, (), (1,)),
    # Retention has removed the offset from the leader: no other replica can be compared.
    ({1: [Held(20, 20, log_start=15)], 2: [HOLDS]}, COMPLETE, ()),
], ids=["ended elsewhere", "a later one is open", "a follower has caught up", "the coordinator tells"])  # fmt: skip
def test_a_transaction_that_has_ended_elsewhere_is_stuck(
    replicas: dict[int, list[Held]], words: tuple[TransactionDescription, ...], ended_on: tuple[int, ...]
) -> None:
    (suspicion,) = filtered(replicas, words).suspicions
    assert (suspicion.anomaly, suspicion.broker, suspicion.decided_on) == (STUCK_LSO, 2, ended_on)
    assert (suspicion.offset, suspicion.transaction) == (FIRST, OPEN[0])
    assert "broker 2 still has the transaction of producer 7 open from offset 10 of t-0" in suspicion.explanation
    told = "it has ended on brokers 1, 3; the coordinator of tx says CompleteCommit"
    assert (told in suspicion.explanation) == (ended_on == (1, 3))


def test_a_follower_that_never_catches_up_is_named_and_not_suspected() -> None:
    result = filtered({1: [PAST], 2: [LAGS]}, COMPLETE)
    assert result.suspicions == ()
    (note,) = result.notes
    assert re.search("broker 2 still has the transaction.*too far behind to tell$", note)


@pytest.mark.parametrize(("word", "words"), [
    (replace(WORD, state="CompleteAbort", partitions=frozenset()), "(broker 1) says CompleteAbort"),
    (replace(WORD, state="Empty"), "says Empty"),
    (replace(WORD, partitions=frozenset({("t", 5)})), "has a transaction without that partition"),
    (replace(WORD, producer_epoch=EPOCH + 1), "is at epoch 4 already, not 3"),
    (replace(WORD, producer_id=99), "no coordinator knows that producer"),
])  # fmt: skip
def test_what_is_open_everywhere_and_over_for_its_coordinator_hangs(word: TransactionDescription, words: str) -> None:
    result = filtered({1: [HOLDS], 2: [HOLDS]}, (word,))
    assert [(other.anomaly, other.broker) for other in result.suspicions] == [(HANGING_TRANSACTION, n) for n in (1, 2)]
    assert words in result.suspicions[0].explanation


@pytest.mark.parametrize("last_time_ms", [-1, NOW_MS - UNKNOWN_MS + 1])
def test_a_transaction_of_an_id_that_the_user_may_not_describe_does_not_hang(last_time_ms: int) -> None:
    held = replace(HOLDS, open=(replace(OPEN[0], last_time_ms=last_time_ms),))
    assert filtered({1: [held], 2: [held]}, (replace(WORD, producer_id=99),)).suspicions == ()


def test_a_replica_that_does_not_answer_may_have_the_marker() -> None:
    (suspicion,) = filtered({2: [HOLDS]}, (replace(COMPLETE[0], coordinator=2),), absent=(1,)).suspicions
    assert suspicion.anomaly == STUCK_LSO


OTHER_WORD: dict[str, Any] = {"words": (replace(WORD, producer_id=99),)}
LOADING = kafka.errors.CoordinatorLoadInProgressError.errno


@pytest.mark.parametrize(("leader", "note"), [
    ({"error": LOADING}, "broker 1 does not list transactions: CoordinatorLoadInProgressError"),
    ({**OTHER_WORD, "coordinators": (1, -1)}, "partition 1 of __transaction_state has no leader"),
    ({}, NOTHING_SEEN),
], ids=["loads", "nobody leads", "the user sees no transactional ids"])  # fmt: skip
def test_a_coordinator_that_does_not_tell_may_know_better(leader: dict[str, Any], note: str) -> None:
    result = filtered({1: [HOLDS], 2: [HOLDS]}, **leader)
    assert result.suspicions == ()
    assert note in result.notes


def test_coordinators_that_all_tell_know_every_producer() -> None:
    assert len(filtered({1: [HOLDS], 2: [HOLDS]}, **OTHER_WORD, coordinators=(1, 2)).suspicions) == 2


def test_brokers_that_are_down_and_a_user_who_may_not_read_are_reported() -> None:
    result = filtered({1: [PAST], 2: [PAST]}, absent=(3,))
    assert result.notes == ("broker 3 does not answer: it is not registered with the cluster",)
    with pytest.raises(UsageError, match="may not read topic t: an audit needs Describe and Read"):
        filtered({1: [PAST]}, error=kafka.errors.TopicAuthorizationFailedError.errno)


class TestRedpanda:
    """Followers tell neither their log end nor their open transactions."""

    def filtered(self, *follower: Held) -> Prefiltered:
        follows = FakeBroker({TP: list(follower)}, is_redpanda_follower=True)
        return filtered_of({1: FakeBroker({TP: [PAST]}), 2: follows})

    def test_a_follower_is_looked_at_where_the_leader_starts(self) -> None:
        result = self.filtered(PAST)
        assert result.suspicions == ()
        look = result.statuses.replicas[2, TP]
        assert (look.high_watermark, look.log_end, look.open) == (20, None, None)
        (note,) = result.notes
        assert note.startswith("broker 2 did not list the open transactions")

    def test_a_last_stable_offset_that_stays_behind_is_suspicious(self) -> None:
        (suspicion,) = self.filtered(replace(HOLDS, open=())).suspicions
        assert (suspicion.broker, suspicion.offset, suspicion.decided_on) == (2, FIRST, (1,))
        assert suspicion.transaction is None
        assert "stays at 10, which broker 1 passed" in suspicion.explanation

    def test_one_that_lags_for_a_moment_is_not_and_one_that_is_behind_is_named(self) -> None:
        lags = replace(HOLDS, open=())
        assert self.filtered(lags, lags, lags, lags, PAST).suspicions == ()
        result = self.filtered(Held(12, FIRST))
        assert result.suspicions == ()
        assert any("too far behind" in note for note in result.notes)
