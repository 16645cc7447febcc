"""Blame for a disputed record: literal states of replicas 1, 2 and 3, and these states by literal rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from checkers.attribution import blame as blames
from checkers.attribution.blame import DELETED, SUPERSEDED, KeyState, LastRecord, blame_state
from checkers.attribution.coverage import EpochCoverage, Proof
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from checkers.replay.judged import Judged


@dataclass(frozen=True)
class Witnesses(EpochCoverage):
    """Brokers that received everything from a leader epoch on, by broker."""

    since: tuple[tuple[int, int], ...] = ()

    def received(self, broker: int, first_epoch: int, last_epoch: int | None = None) -> Proof | None:  # noqa: ARG002
        since = dict(self.since).get(broker)
        return None if since is None or since > first_epoch else Proof(f"led leader epoch {since}")


def witnesses(*brokers: int, since: int = 0) -> Witnesses:
    return Witnesses(since=tuple((broker, since) for broker in brokers))


def value(broker: int, offset: int, epoch: int = 0) -> KeyState:
    """Return a replica that serves the value of an offset, in no transaction."""
    return KeyState(broker, 0, LastRecord(offset, tombstone=False, leader_epoch=epoch), _at(COMMITTED, epoch))


def transactional(broker: int, belief: str, *, offset: int = 5, epoch: int = 0) -> KeyState:
    last = LastRecord(offset, tombstone=False, leader_epoch=epoch) if belief == COMMITTED else None
    return KeyState(broker, 0, last, _at(belief, epoch, decided=epoch), offset if belief == OPEN else None)


def _at(belief: str, epoch: int, decided: int | None = None) -> blames.DisputedRecord:
    return blames.DisputedRecord(
        belief, transactional=decided is not None, leader_epoch=epoch, decided_in_leader_epoch=decided
    )


def deleted(broker: int, offset: int, epoch: int = 0) -> KeyState:
    return KeyState(broker, 0, LastRecord(offset, tombstone=True, leader_epoch=epoch))


def lone(broker: int, offset: int) -> KeyState:
    """Return a replica that serves the value of an offset, and does not have the disputed record."""
    return KeyState(broker, 0, LastRecord(offset, tombstone=False, leader_epoch=0))


def nothing(broker: int, log_start: int = 0) -> KeyState:
    return KeyState(broker, log_start)


def going_on(states: Sequence[KeyState]) -> list[KeyState]:
    return [replace(state, goes_on=True) for state in states]


SERVED, GONE, DELETE_AT_9 = value(1, 5), nothing(2), deleted(2, 9)
ALIKE = [SERVED, GONE, value(3, 5)]
ABORTED_DELETE = [deleted(1, 5), nothing(2), value(3, 4)]
"""The delete at 5 was aborted; brokers 1 and 2 carried it out, and only broker 3 still has the value at 4."""


@pytest.mark.parametrize(("states", "coverage", "truth", "wrong", "right"), [
    (ALIKE, EpochCoverage(), None, set(), set()),
    (ALIKE, witnesses(2), SUPERSEDED, {1, 3}, {2}),
    (ALIKE, witnesses(1), 5, {2}, {1, 3}),
    # A witness has received everything since the value was written, or else since the later delete.
    ([value(1, 5, epoch=1), GONE, value(3, 5, epoch=1)], witnesses(2, since=2), None, set(), set()),
    ([SERVED, deleted(2, 9, epoch=3), nothing(3)], witnesses(2, since=3), DELETED, {1}, {2, 3}),
    # An older value may be right where the disputed value is gone, but not where the key was deleted.
    ([SERVED, GONE, value(3, 1)], witnesses(2), SUPERSEDED, {1}, {2}),
    ([SERVED, DELETE_AT_9, value(3, 1)], witnesses(2), DELETED, {1, 3}, {2}),
    (ABORTED_DELETE, witnesses(3), 4, {1, 2}, {3}),
    (ABORTED_DELETE, witnesses(3, since=1), None, set(), set()),
    # A record that one witness shows says more than another witness without the disputed value.
    ([SERVED, deleted(2, 9), nothing(3)], witnesses(2, 3), DELETED, {1}, {2, 3}),
    ([lone(1, 4), lone(2, 4), value(3, 5, epoch=1)], Witnesses(since=((1, 0), (2, 1))), 4, {3}, {1, 2}),
    ([lone(2, 4), value(3, 5, epoch=1)], witnesses(2, since=1), SUPERSEDED, {3}, {2}),
    ([deleted(1, 9), nothing(2)], witnesses(1, 2), DELETED, set(), {1, 2}),
    # Logs whose leader epochs contradict each other decide nothing.
    ([SERVED, GONE, value(3, 5, epoch=1)], witnesses(2, since=1), None, set(), set()),
    ([value(1, 5, epoch=1), lone(2, 5)], witnesses(2, since=1), None, set(), set()),
    ([value(1, 5, epoch=1), lone(2, 9)], witnesses(2, since=1), None, set(), set()),
    # A log that starts later neither decides nor is blamed.
    ([SERVED, nothing(2, log_start=6), nothing(3)], witnesses(1, 2), 5, {3}, {1}),
    ([SERVED, nothing(2, log_start=5)], witnesses(2), SUPERSEDED, {1}, {2}),
    ([lone(1, 4), replace(SERVED, broker=2, log_start=4)], witnesses(1), 4, {2}, {1}),
    ([deleted(1, 5), nothing(2, log_start=5), value(3, 4)], witnesses(3), 4, {1}, {3}),
    # A cleaner removes every record of a key that has a later one beyond the bound.
    (going_on(ALIKE), witnesses(2), None, set(), set()),
    (going_on(ALIKE), witnesses(1), 5, set(), {1, 3}),
    # A replica with the key in an open transaction is not blamed for the state.
    ([value(1, 9), transactional(2, OPEN), value(3, 9)], witnesses(1), 9, set(), {1, 3}),
])  # fmt: skip
def test_the_replicas_that_differ_from_what_a_witness_shows_are_wrong(
    states: list[KeyState], coverage: EpochCoverage, truth: Any, wrong: Any, right: Any
) -> None:
    blame = blame_state(5, states, coverage)
    assert (blame.truth, blame.wrong, blame.right) == (truth, wrong, right)
    assert blame.contradiction is None


def test_the_witness_with_the_fewest_assumptions_counts_and_the_reason_is_what_it_received() -> None:
    assert blame_state(5, ALIKE, witnesses(2)).reasons == ("broker 2 led leader epoch 0",)

    class Assuming(Witnesses):
        def received(self, broker: int, first_epoch: int, last_epoch: int | None = None) -> Proof | None:
            proof = super().received(broker, first_epoch, last_epoch)
            return proof and replace(proof, assumptions=("an assumption",) * broker)

    assert blame_state(5, [SERVED, value(2, 5)], Assuming(since=((1, 0), (2, 0)))).assumptions == ("an assumption",)


def test_witnesses_that_differ_decide_nothing() -> None:
    blame = blame_state(5, ALIKE, witnesses(1, 2))
    assert (blame.truth, blame.wrong) == (None, frozenset())
    assert "broker 1 led leader epoch 0; broker 2 led leader epoch 0" in str(blame.contradiction)
    assert blame_state(5, [SERVED, DELETE_AT_9, value(3, 1)], witnesses(2, 3)).contradiction is not None
    # A newer value does not explain why a complete replica has none.
    assert blame_state(5, [value(1, 9), GONE, SERVED], witnesses(1, 2)).contradiction is not None


def test_the_outcome_is_what_a_witness_believes_that_received_record_and_marker() -> None:
    blame = blames.blame_transaction([transactional(1, ABORTED), transactional(2, COMMITTED), nothing(3)], witnesses(1))
    assert (blame.truth, blame.wrong, blame.right) == (ABORTED, frozenset({2}), frozenset({1}))
    still_open = blames.blame_transaction([transactional(1, OPEN), transactional(2, COMMITTED)], witnesses(1, 2))
    assert (still_open.truth, still_open.wrong) == (COMMITTED, frozenset())
    assert blames.blame_transaction([SERVED, transactional(2, ABORTED)], witnesses(1)).truth is None


def test_what_replicas_serve_in_words() -> None:
    about = [value(1, 5), transactional(2, ABORTED), transactional(3, OPEN), nothing(4), nothing(5, log_start=7)]
    about.append(nothing(6, log_start=5))
    assert blames.states_served(5, about) == {
        "the value of offset 5": [1],
        "nothing, with offset 5 believed aborted": [2],
        "nothing, with offset 5 in an open transaction": [3],
        "nothing": [4, 6],
        "nothing (its log starts at 7)": [5],
    }


K, L = b"K", b"L"
RECORDS = (
    "run string, topic string, partition int, broker int, key binary, offset long, tombstone boolean, "
    "transactional boolean, leader_epoch int, belief string, decided_in_leader_epoch int"
)


def states(spark: SparkSession, records: list[tuple[Any, ...]], disputed: int) -> dict[int, dict[str, Any]]:
    """Return the states of key K by broker; ``records``: broker, key, offset, tombstone, belief."""
    rows = [
        ("run", "t", 0, broker, key, offset, tombstone, belief != COMMITTED, offset // 10, belief, None)
        for broker, key, offset, tombstone, belief in records
    ]
    later = spark.createDataFrame([("run", "t", 0, L)], "run string, topic string, partition int, key binary")
    judged = cast("Judged", SimpleNamespace(
        records=spark.createDataFrame(rows, RECORDS), replica_only=SimpleNamespace(later=later),
    ))  # fmt: skip
    actual = blames.key_states(judged, [("run", "t", 0, K, disputed)]).collect()
    return {row["broker"]: row.asDict(recursive=True) for row in actual}


def test_the_last_committed_record_counts_and_the_key_is_open_from_the_first_open_one(spark: SparkSession) -> None:
    records = [(3, False, COMMITTED), (12, True, COMMITTED), (15, False, ABORTED), (18, False, OPEN)]
    (state,) = states(spark, [(1, K, *record) for record in records], disputed=15).values()
    assert state["last"] == {"offset": 12, "tombstone": True, "leader_epoch": 1}
    assert state["at"]["belief"] == ABORTED
    assert state["open_from"] == 18
    (state,) = states(spark, [(1, K, 3, False, OPEN), (1, K, 4, False, OPEN)], disputed=3).values()
    assert (state["last"], state["open_from"]) == (None, 3)


def test_a_replica_without_the_disputed_record_has_no_belief_about_it(spark: SparkSession) -> None:
    actual = states(spark, [(1, K, 3, False, COMMITTED), (2, K, 4, False, COMMITTED), (3, L, 4, False, COMMITTED)], 4)
    assert {broker: state["at"] is None for broker, state in actual.items()} == {1: True, 2: False}
    assert not any(state["goes_on"] for state in actual.values())


def row(offset: int | None, key: bytes | None = K, **witness: int) -> dict[str, Any]:
    return {"run": "run", "topic": "t", "partition": 0, "key": key, "offset": offset, "witness": json.dumps(witness)}


def test_disputed_are_a_finding_s_record_and_the_delete_that_it_misses() -> None:
    place = ("run", "t", 0, K)
    assert blames.disputed_records([row(4, deleted_at=7), row(4)]) == [(*place, 4), (*place, 7)]
    assert blames.disputed_records([row(4, key=None), row(None)]) == [], "a finding without a key or an offset"
