"""The first marker after an offset: in memory for the observer, a Spark window for checkers, arrays for audits."""

from random import Random

import numpy as np
import pytest
from pyspark.sql import SparkSession

from checkers.reduction.consistent_spans import NOWHERE, first_after
from checkers.replay.batch_outcomes import outcome_of, with_first_marker
from harness.broker_files.segments.records import ABORT, COMMIT, DATA, MARKERS, first_marker

Entries = dict[int, tuple[str, int]]


def entries(seed: int) -> Entries:
    """Return a log of three producers in which some offsets are empty."""
    random = Random(seed)  # noqa: S311
    kinds = (*DATA, *DATA, COMMIT, ABORT, "control-2")
    return {offset: (random.choice(kinds), random.randrange(3)) for offset in range(60) if random.random() < 0.7}


LOGS = [entries(seed) for seed in range(20)]


def places(log: Entries) -> list[tuple[int, int]]:
    return [(offset, producer) for offset, (kind, producer) in log.items() if kind in DATA]


def markers(log: Entries) -> list[tuple[int, int, str]]:
    return [(offset, producer, kind) for offset, (kind, producer) in log.items() if kind in MARKERS]


def by_rule(log: Entries) -> dict[int, int | None]:
    marks = [(offset, producer) for offset, producer, _ in markers(log)]
    return {offset: first_marker(marks, producer, offset) for offset, producer in places(log)}


@pytest.mark.parametrize(("at", "producer", "expected"), [(5, 7, 5), (2, 7, None), (5, 8, None)])
def test_a_transaction_ends_with_a_later_marker_of_its_producer(at: int, producer: int, expected: int | None) -> None:
    assert first_marker([(1, 7), (at, producer), (9, 8)], 7, 3) == expected


def test_the_checkers_have_the_same_rule(spark: SparkSession) -> None:
    schema = "run string, topic string, partition int, producer_id long, offset long"
    logs = [(str(run), log) for run, log in enumerate(LOGS)]
    rows = [(run, "t", 0, producer, at) for run, log in logs for at, producer in places(log)]
    marks = [(run, "t", 0, producer, at, kind) for run, log in logs for at, producer, kind in markers(log)]
    table = spark.createDataFrame(marks, schema.replace("offset", "marker_offset") + ", kind string")
    outcomes = table.withColumn("outcome", outcome_of("kind"))
    actual = with_first_marker(spark.createDataFrame(rows, schema), outcomes, at="offset").collect()
    outcome = {COMMIT: "committed", ABORT: "aborted"}
    assert {(int(row["run"]), row["offset"], row["first_marker"], row["marker_outcome"]) for row in actual} == {
        (run, at, first, None if first is None else outcome[log[first][0]])
        for run, log in enumerate(LOGS)
        for at, first in by_rule(log).items()
    }


@pytest.mark.parametrize("log", LOGS)
def test_the_fast_path_has_the_same_rule(log: Entries) -> None:
    offsets, producers = map(np.array, zip(*places(log), strict=True))
    marked_at, marking, _ = map(np.array, zip(*markers(log), strict=True))
    actual = first_after(producers, offsets, (marking, marked_at))
    assert actual.tolist() == [NOWHERE if first is None else first for first in by_rule(log).values()]
