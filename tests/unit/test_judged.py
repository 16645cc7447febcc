"""The facts about batches that are reported next to findings."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from literal import History, Txn, commit, put, replica, together, write_run
from pyspark.sql import SparkSession

from checkers.evidence.tables import load
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from checkers.replay.judged import Judged, judge, transaction_outcomes

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
    expected = [(0, 4, COMMITTED, 9), (6, 7, ABORTED, 8), (10, 11, OPEN, None)]
    assert sorted(row[4:] for row in map(tuple, outcomes.collect())) == expected


def test_a_batch_of_two_records_has_one_outcome(spark: SparkSession, tmp_path: Path) -> None:
    txn = Txn(1, "t/1")
    log = (together(put(0, "K", txn), put(1, "L", txn)), commit(2, txn))
    folder = write_run(tmp_path, History("two", wrote=log, after=(replica(1, *log), replica(2, *log))))
    outcomes = map(tuple, transaction_outcomes(judge(load(spark, [folder]))).collect())
    assert sorted(row[3:] for row in outcomes) == [(broker, 0, 1, COMMITTED, 2) for broker in (1, 2)]
