"""Spans of aborted transactions that end at the same marker and begin at different offsets, on literal rows."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkers.consistency.side_files import compare_spans
from harness.judge.check import collected

PLACE = "run string, topic string, partition int, broker int"
LONG, SHORT = 10, 14
"""The first offsets of producer 7's transaction on broker 1 and broker 2; an ABORT at 20 ends it."""
END, BOUND = 20, 30


def differing(
    spark: SparkSession,
    *,
    epochs: Sequence[tuple[int, int, int]] = (),
    log_starts: Sequence[int] = (0, 0),
    bound: int = BOUND,
    starts: Sequence[int] = (LONG, SHORT),
) -> list[dict[str, Any]]:
    """Compare the spans of brokers 1, 2, ...; ``epochs``: broker, leader epoch, start offset."""
    place = ("run", "t", 0)
    brokers = range(1, len(starts) + 1)
    aborts = [(*place, broker, 7, start, END) for broker, start in zip(brokers, starts, strict=True)]
    replicas = [(*place, broker, start, bound) for broker, start in zip(brokers, log_starts, strict=True)]
    rows = compare_spans(
        spark.createDataFrame(aborts, f"{PLACE}, producer_id long, first_offset long, last_offset long"),
        spark.createDataFrame([(*place, *epoch) for epoch in epochs], f"{PLACE}, leader_epoch int, start_offset long"),
        spark.createDataFrame(replicas, f"{PLACE}, log_start long, bound long"),
    )
    return list(map(dict, collected(rows)))


def test_the_longer_span_is_named_with_the_shorter_one_and_the_epoch_it_began_in(spark: SparkSession) -> None:
    (row,) = differing(spark)
    assert (row["broker"], row["producer_id"], row["last_offset"], row["leader_epoch"]) == (1, 7, END, None)
    assert [(span["broker"], span["first_offset"]) for span in row["spans"]] == [(1, LONG), (2, SHORT)]
    assert "the records of producer 7 from offset 10 to 20 as aborted, broker 2 only from 14 on" in row["reason"]
    (row,) = differing(spark, epochs=[(1, 2, 0), (1, 4, LONG), (1, 5, LONG + 1), (2, 3, 6)])
    assert row["leader_epoch"] == 4


@pytest.mark.parametrize(("changes", "is_found"), [
    ({"log_starts": (0, LONG)}, True), ({"log_starts": (LONG, 0)}, True), ({"log_starts": (0, LONG + 1)}, False),
    ({"bound": END + 1}, True), ({"bound": END}, False), ({"starts": (LONG, LONG)}, False),
])  # fmt: skip
def test_only_spans_that_differ_below_the_bound_on_logs_that_begin_before_them_are_found(
    changes: dict[str, Any], spark: SparkSession, *, is_found: bool
) -> None:
    assert bool(differing(spark, **changes)) is is_found


@pytest.mark.parametrize("third", [12, SHORT + 1])
@pytest.mark.parametrize(("log_start", "brokers"), [(LONG + 1, [1, 2]), (LONG, [1, 2, 3])])
def test_a_third_log_that_starts_inside_the_span_is_left_out_of_the_spans(
    log_start: int, brokers: Sequence[int], third: int, spark: SparkSession
) -> None:
    (row,) = differing(spark, starts=(LONG, SHORT, third), log_starts=(0, 0, log_start))
    assert sorted(span["broker"] for span in row["spans"]) == brokers
