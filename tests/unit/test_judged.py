"""The facts about batches that are reported next to findings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from pyspark.sql import SparkSession

from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from checkers.replay.judged import Judged, transaction_outcomes

REPLICA = ("run", "t", 0, 1)
SCHEMA = (
    "run string, topic string, partition int, broker int, base_offset long, last_offset long, transactional boolean, "
    "belief string, decided_by long"
)


def test_an_outcome_is_told_of_batches_in_transactions_alone(spark: SparkSession) -> None:
    rows = [
        (*REPLICA, 0, 4, True, COMMITTED, 9),
        (*REPLICA, 5, 5, False, COMMITTED, None),
        (*REPLICA, 6, 7, True, ABORTED, 8),
        (*REPLICA, 10, 11, True, OPEN, None),
    ]
    judged = cast("Judged", SimpleNamespace(beliefs=spark.createDataFrame(rows, SCHEMA)))
    outcomes = transaction_outcomes(judged)
    assert outcomes.columns == [
        "run", "topic", "partition", "broker", "base_offset", "last_offset", "outcome", "decided_by"
    ]  # fmt: skip
    assert sorted(row[4:] for row in map(tuple, outcomes.collect())) == [
        (0, 4, COMMITTED, 9),
        (6, 7, ABORTED, 8),
        (10, 11, OPEN, None),
    ]
