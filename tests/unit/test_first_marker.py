"""The first marker after an offset: in memory and on rows, on the same markers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from checkers.replay.batch_outcomes import COMMITTED, with_first_marker
from checkers.replay.first_marker import first_marker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKERS = [(3, 5), (7, 6), (9, 5), (14, 5), (15, 6)]
"""Offset and producer id."""
PLACE = "run string, topic string, partition int, producer_id long"


def test_rows_and_memory_give_the_same_marker(spark: SparkSession) -> None:
    # No record has the offset of a marker.
    asked = [(producer_id, at) for producer_id, at in product((5, 6, 8), range(17)) if at not in dict(MARKERS)]
    records = spark.createDataFrame([("r", "t", 0, *one) for one in asked], f"{PLACE}, offset long")
    marks = [("r", "t", 0, producer_id, at, COMMITTED) for at, producer_id in MARKERS]
    markers = spark.createDataFrame(marks, f"{PLACE}, marker_offset long, outcome string")
    rows = with_first_marker(records, markers, at="offset").collect()
    assert {(row["producer_id"], row["offset"]): row["first_marker"] for row in rows} == {
        (producer_id, offset): first_marker(MARKERS, producer_id, offset) for producer_id, offset in asked
    }


def test_a_marker_at_the_offset_itself_is_not_after_it() -> None:
    assert [first_marker(MARKERS, 5, offset) for offset in (2, 3, 9, 14)] == [3, 9, 14, None]
