"""The state of each disputed key on each replica, on literal rows."""

import json
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import SparkSession

from checkers.attribution.key_states import disputed_records, key_states
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from checkers.replay.judged import Judged

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
    judged = cast("Judged", SimpleNamespace(records=spark.createDataFrame(rows, RECORDS)))
    actual = key_states(judged, [("run", "t", 0, K, disputed)]).collect()
    return {row["broker"]: row.asDict(recursive=True) for row in actual}


def test_the_last_committed_record_counts_and_not_what_is_aborted_or_open(spark: SparkSession) -> None:
    (state,) = states(
        spark,
        [(1, K, 3, False, COMMITTED), (1, K, 12, True, COMMITTED), (1, K, 15, False, ABORTED), (1, K, 18, False, OPEN)],
        disputed=15,
    ).values()
    assert state["last"] == {"offset": 12, "tombstone": True, "leader_epoch": 1}
    assert state["at"]["belief"] == ABORTED
    assert state["open_from"] == 18


def test_the_first_open_record_is_where_the_key_is_open_from(spark: SparkSession) -> None:
    (state,) = states(spark, [(1, K, 3, False, OPEN), (1, K, 4, False, OPEN)], disputed=3).values()
    assert (state["last"], state["open_from"]) == (None, 3)


def test_a_replica_without_the_disputed_record_has_no_belief_about_it(spark: SparkSession) -> None:
    actual = states(spark, [(1, K, 3, False, COMMITTED), (2, K, 4, False, COMMITTED), (3, L, 4, False, COMMITTED)], 4)
    assert {broker: state["at"] is None for broker, state in actual.items()} == {1: True, 2: False}


def row(offset: int | None, key: bytes | None = K, **witness: int) -> dict[str, Any]:
    return {"run": "run", "topic": "t", "partition": 0, "key": key, "offset": offset, "witness": json.dumps(witness)}


def test_disputed_are_a_finding_s_record_and_the_delete_that_it_misses() -> None:
    place = ("run", "t", 0, K)
    assert disputed_records([row(4, deleted_at=7), row(4)]) == [(*place, 4), (*place, 7)]


def test_a_finding_without_a_key_or_an_offset_disputes_no_record() -> None:
    assert disputed_records([row(4, key=None), row(None)]) == []
