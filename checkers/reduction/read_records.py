"""Read some records of big files as the rows of `ENTRIES`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.parse import DISK, batch_rows
from checkers.evidence.schemas import ENTRIES
from checkers.evidence.tables import REPLICA
from harness.broker_files.segments.batches import until_cut
from harness.broker_files.segments.blocks import iter_blocks
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from checkers.evidence.files import SegmentFile
    from harness.broker_files.segments.blocks import Block

_HEAD = 7
"""The number of columns of `ENTRIES` that follow from the path of a file."""
_FIRST_AT, _OFFSET_AT = (ENTRIES.names.index(name) - _HEAD for name in ("first_in_batch", "offset"))


def read_records(spark: SparkSession, ranges: DataFrame, segments: Sequence[SegmentFile]) -> DataFrame:
    """Return `ENTRIES` of the records in these ranges (REPLICA, ``from``, ``to``), not of complete batches.

    A batch without records is returned as one row.
    """
    schema = to_arrow_schema(ENTRIES)
    files = spark.createDataFrame(
        [(*s.place, s.broker, number, s.base_offset) for number, s in enumerate(segments)],
        "run string, topic string, partition int, broker int, segment int, base_offset long",
    )
    by_file = (
        ranges.join(f.broadcast(files), REPLICA)
        .where("base_offset <= to")
        # An offset is in the last segment that begins at or before it.
        .groupBy("from", "to", *REPLICA)
        .agg(f.max_by("segment", "base_offset").alias("segment"))
        .groupBy("segment")
        .agg(f.collect_list("from").alias("from"), f.collect_list("to").alias("to"))
    )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index, starts, ends in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from _segment_records(segments[index], np.array(starts), np.array(ends), schema)

    return by_file.mapInArrow(read, ENTRIES)


def _segment_records(
    segment: SegmentFile, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    head = (segment.run, AFTER_REJOIN, DISK, segment.broker, segment.topic, segment.partition, True)
    with segment.path.open("rb", buffering=0) as file:
        for block in until_cut(iter_blocks(file, source=str(segment.path), verify_crc=False)):
            rows = [(*head, *row, None) for row in _rows(block, starts, ends)]
            if rows:
                yield pa.RecordBatch.from_pydict(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema)


def _rows(block: Block, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of each record in the ranges; sets ``first_in_batch`` of the first one in each batch."""
    for index in np.flatnonzero(_any_within(block.batches["base_offset"], block.batches["last_offset"], starts, ends)):
        is_first = True
        for row in batch_rows(block.batch(int(index)), block.source):
            offset = row[_OFFSET_AT]
            if offset is None or _any_within(np.array([offset]), np.array([offset]), starts, ends)[0]:
                yield (*row[:_FIRST_AT], is_first, *row[_OFFSET_AT:])
                is_first = False


def _any_within(
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Return for each pair of first and last offsets whether it overlaps a range; ``starts`` is sorted."""
    nearest = np.searchsorted(starts, last, "right") - 1
    overlaps: npt.NDArray[np.bool_] = (nearest >= 0) & (ends[nearest] >= first)
    return overlaps
