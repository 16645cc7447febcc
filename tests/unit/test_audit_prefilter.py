"""Suspicious replicas before any data is read, and healthy ones: replicas that lag, transactions that are open."""

from dataclasses import replace
from typing import Any

import kafka.errors
import pytest
from fakes.brokers import TP, FakeBroker, Held, audited

from harness.audit.live.broker_reports import NOTHING_SEEN
from harness.audit.live.prefilter import HANGING_TRANSACTION, STUCK_LSO, Prefiltered, prefilter
from harness.errors import UsageError
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription

PRODUCER, EPOCH, FIRST = 7, 3, 10
OPEN = (OpenTransaction(PRODUCER, EPOCH, FIRST),)
HOLDS = Held(high_watermark=20, last_stable_offset=FIRST, open=OPEN)
PAST = Held(high_watermark=20, last_stable_offset=20)
WORD = TransactionDescription(1, "tx", "Ongoing", PRODUCER, EPOCH, 1000, frozenset({TP}))


def filtered(
    replicas: dict[int, list[Held]],
    words: tuple[TransactionDescription, ...] = (),
    absent: tuple[int, ...] = (),
    **first: Any,
) -> Prefiltered:
    """Filter one partition; the first broker leads, coordinates, and has ``first`` set."""
    brokers = {broker: FakeBroker({TP: list(states)}) for broker, states in replicas.items()}
    leader = brokers[min(brokers)]
    leader.words = list(words)
    for name, value in first.items():
        setattr(leader, name, value)
    return filtered_of(brokers, absent)


def filtered_of(brokers: dict[int, FakeBroker], absent: tuple[int, ...] = ()) -> Prefiltered:
    return prefilter(audited(brokers, absent=absent))


def test_a_quiet_cluster_is_looked_at_and_nothing_is_reported() -> None:
    result = filtered({1: [PAST], 2: [PAST], 3: [PAST]})
    assert (result.suspicions, result.notes) == ((), ())
    assert result.statuses.replicas[2, TP].log_end == 20


def test_a_transaction_that_others_decided_is_stuck() -> None:
    result = filtered({1: [PAST], 2: [HOLDS], 3: [PAST]}, (replace(WORD, state="CompleteCommit"),))
    (suspicion,) = result.suspicions
    assert (suspicion.anomaly, suspicion.broker, suspicion.decided_on) == (STUCK_LSO, 2, (1, 3))
    assert (suspicion.offset, suspicion.transaction) == (FIRST, OPEN[0])
    assert "broker 2 still has the transaction of producer 7 open from offset 10 of t-0" in suspicion.explanation
    assert "it has ended on brokers 1, 3; the coordinator of tx says CompleteCommit" in suspicion.explanation


def test_a_later_transaction_of_the_producer_elsewhere_is_another_one() -> None:
    later = Held(20, 15, open=(OpenTransaction(PRODUCER, EPOCH + 2, 15),))
    (suspicion,) = filtered({1: [later], 2: [HOLDS]}, (replace(WORD, producer_epoch=EPOCH + 2),)).suspicions
    assert (suspicion.anomaly, suspicion.broker, suspicion.decided_on) == (STUCK_LSO, 2, (1,))


LAGS = replace(HOLDS, high_watermark=12)
ENDED = replace(PAST, high_watermark=21, last_stable_offset=21)
COMPLETE = (replace(WORD, state="CompleteCommit"),)


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ({1: [PAST], 2: [LAGS, LAGS, LAGS, PAST]}, ()),
        ({1: [replace(PAST, log_start=11)], 2: [HOLDS]}, (WORD,)),
        ({1: [HOLDS], 2: [Held(high_watermark=20, last_stable_offset=FIRST)]}, (WORD,)),
        ({1: [HOLDS, ENDED], 2: [HOLDS, HOLDS, ENDED]}, COMPLETE),
        ({1: [PAST, HOLDS]}, ()),
    ],
    ids=[
        "the follower has the marker a moment later", "a log that starts later decides nothing",
        "a last stable offset that lags is no decision", "ended meanwhile", "began after coordinators were asked",
    ],
)  # fmt: skip
def test_what_is_not_suspicious(replicas: dict[int, list[Held]], words: tuple[TransactionDescription, ...]) -> None:
    assert filtered(replicas, words).suspicions == ()


def test_a_follower_that_stays_stuck_once_it_has_caught_up_is() -> None:
    (suspicion,) = filtered({1: [PAST], 2: [LAGS, LAGS, LAGS, HOLDS]}).suspicions
    assert suspicion.broker == 2


def test_a_follower_that_never_catches_up_is_named_and_not_suspected() -> None:
    result = filtered({1: [PAST], 2: [LAGS]}, COMPLETE)
    assert result.suspicions == ()
    (note,) = result.notes
    assert "broker 2 still has the transaction" in note
    assert note.endswith("too far behind to tell")


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "unheard-of"])
def test_a_transaction_that_goes_on_or_is_being_ended_is_not_suspicious(state: str) -> None:
    assert filtered({1: [HOLDS], 2: [HOLDS]}, (replace(WORD, state=state),)).suspicions == ()


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (replace(WORD, state="CompleteAbort", partitions=frozenset()), "(broker 1) says CompleteAbort"),
        (replace(WORD, state="Empty"), "says Empty"),
        (replace(WORD, partitions=frozenset({("t", 5)})), "has a transaction without that partition"),
        (replace(WORD, producer_epoch=EPOCH + 1), "is at epoch 4 already, not 3"),
        (replace(WORD, producer_id=99), "no coordinator knows that producer"),
    ],
)
def test_a_transaction_that_is_open_everywhere_and_over_for_its_coordinator_hangs(
    word: TransactionDescription, words: str
) -> None:
    result = filtered({1: [HOLDS], 2: [HOLDS]}, (word,))
    assert [(other.anomaly, other.broker) for other in result.suspicions] == [(HANGING_TRANSACTION, n) for n in (1, 2)]
    assert words in result.suspicions[0].explanation


def test_a_coordinator_that_does_not_tell_may_know_better() -> None:
    result = filtered({1: [HOLDS], 2: [HOLDS]}, error=kafka.errors.CoordinatorLoadInProgressError.errno)
    assert result.suspicions == ()
    assert any("broker 1 does not list transactions: CoordinatorLoadInProgressError" in note for note in result.notes)


def test_a_coordinator_that_nobody_leads_may_know_better() -> None:
    another = (replace(WORD, producer_id=99),)
    result = filtered({1: [HOLDS], 2: [HOLDS]}, another, coordinators=(1, -1))
    assert result.suspicions == ()
    assert result.notes == ("partition 1 of __transaction_state has no leader",)
    assert len(filtered({1: [HOLDS], 2: [HOLDS]}, another, coordinators=(1, 2)).suspicions) == 2


def test_a_user_who_sees_no_transactional_ids_suspects_nobody_for_it() -> None:
    result = filtered({1: [HOLDS], 2: [HOLDS]})
    assert result.suspicions == ()
    assert result.notes == (NOTHING_SEEN,)


def test_what_is_open_on_a_follower_alone_is_reported_by_the_coordinator() -> None:
    """Once retention has removed the offset from the leader, no other replica can be compared."""
    leader = Held(20, 20, log_start=15)
    (suspicion,) = filtered({1: [leader], 2: [HOLDS]}, (replace(WORD, state="CompleteCommit"),)).suspicions
    assert (suspicion.anomaly, suspicion.broker, suspicion.decided_on) == (STUCK_LSO, 2, ())


def test_brokers_that_are_down_are_named() -> None:
    result = filtered({1: [PAST], 2: [PAST]}, absent=(3,))
    assert result.notes == ("broker 3 does not answer: it is not registered with the cluster",)


def test_a_user_who_may_not_read_is_reported() -> None:
    with pytest.raises(UsageError, match="may not read topic t: an audit needs Describe and Read"):
        filtered({1: [PAST]}, error=kafka.errors.TopicAuthorizationFailedError.errno)


class TestRedpanda:
    """Followers tell neither their log end nor their open transactions."""

    def brokers(self, *follower: Held) -> dict[int, FakeBroker]:
        return {1: FakeBroker({TP: [PAST]}), 2: FakeBroker({TP: list(follower)}, is_redpanda_follower=True)}

    def test_a_follower_is_looked_at_where_the_leader_starts(self) -> None:
        result = filtered_of(self.brokers(PAST))
        assert result.suspicions == ()
        look = result.statuses.replicas[2, TP]
        assert (look.high_watermark, look.log_end, look.open) == (20, None, None)
        (note,) = result.notes
        assert note.startswith("broker 2 did not list the open transactions")

    def test_a_last_stable_offset_that_stays_behind_is_suspicious(self) -> None:
        (suspicion,) = filtered_of(self.brokers(replace(HOLDS, open=()))).suspicions
        assert (suspicion.broker, suspicion.offset, suspicion.decided_on) == (2, FIRST, (1,))
        assert suspicion.transaction is None
        assert "stays at 10, which broker 1 passed" in suspicion.explanation

    def test_one_that_lags_for_a_moment_is_not(self) -> None:
        lags = replace(HOLDS, open=())
        assert filtered_of(self.brokers(lags, lags, lags, lags, PAST)).suspicions == ()

    def test_one_whose_replica_is_behind_is_named(self) -> None:
        result = filtered_of(self.brokers(Held(12, FIRST)))
        assert result.suspicions == ()
        assert any("too far behind" in note for note in result.notes)
