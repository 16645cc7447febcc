"""The producer spans about which replicas may differ, as rows; all other spans are summed up.

Most transactions begin and end within a chunk of offsets (`packed_spans`), and every replica that has them shows the
same: they are settled. A log of millions of small transactions has few other spans, and only these become rows.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import TEXT, table
from checkers.evidence.tables import PARTITION, PLACE, REPLICA, REPLICA_PLACE, Evidence, RunPartition, place_of
from checkers.reduction import packed_spans as span
from checkers.reduction.consistent_spans import SortedSpans, first_after
from checkers.reduction.segments import (
    PRODUCER_SPANS,
    Array,
    Flags,
    ReplicaSegment,
    numbered,
    read_segments,
    rows_of_files,
    span_arrays,
)
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.broker_files.segments.records import ABORT, COMMIT

MARKER, EPOCHS = "marker", "epochs"
SPANS = t.StructType([*PRODUCER_SPANS.fields, *table(settled=TEXT, beliefs=t.BinaryType()).fields])
"""`PRODUCER_SPANS`, and rows with ``settled`` that stand for many spans: with ``region``, ``records``, ``digest`` and
``transactional`` of all data that are committed or aborted, or of all markers (`MARKER`); or with the offsets of a
leader epoch in a file (`EPOCHS`). Rows with ``beliefs`` have only these (`candidate_keys.BELIEF`) and ``segment``."""

DisputedRanges = Mapping[RunPartition, Collection[tuple[int, int, int]]]
"""Producers, with the first and the last offset of a range in which all spans are needed."""

_NAMES: Final = {span.COMMITS: COMMIT, span.ABORTS: ABORT, span.OTHER: "other"}


def unsettled_spans(
    spark: SparkSession,
    segments: Sequence[ReplicaSegment],
    side: Evidence,
    *,
    disputed: DisputedRanges,
    tasks: int,
    chunk_offsets: int = span.CHUNK_OFFSETS,
) -> DataFrame:
    """Return `SPANS` of these files. ``side``: the aborted and open transactions of their replicas."""
    schema = to_arrow_schema(SPANS)

    def settle(rows: pa.Table) -> pa.Table:
        head = {name: rows.column(name)[0].as_py() for name in PLACE}
        if rows.column("chunk")[0].as_py() == span.FILE:
            return pa.Table.from_pylist([row for file in rows.to_pylist() for row in _rows_of_file(file)], schema)
        spans = SortedSpans.of(span.arrays(rows.column("spans"), span.SPAN))
        unsettled = spans.unsettled()
        for producer, first, last in disputed.get(place_of(head), ()):
            mine = (spans.is_data | spans.is_marker) & (spans.spans["producer"] == producer)
            unsettled |= mine & (spans.spans["at"] <= last) & (spans.spans["end"] >= first)
        summed = pa.Table.from_pylist([{**head, **row} for row in _settled_rows(spans, ~unsettled)], schema)
        return pa.concat_tables([_as_table(spans.spans[unsettled], head, schema), summed])

    files = span.packed_spans(spark, segments, side_files=False, chunk_offsets=chunk_offsets)
    chunks = files.unionByName(_packed_transactions(side, chunk_offsets))
    return chunks.repartition(tasks, *PARTITION, "chunk").groupBy(*PARTITION, "chunk").applyInArrow(settle, SPANS)


def _packed_transactions(side: Evidence, chunk_offsets: int) -> DataFrame:
    """Return `PACKED_SPANS` of the replicas' lists of aborted transactions, and of their open transactions."""
    schema = to_arrow_schema(span.PACKED_SPANS)
    aborted = side.aborts.where("problem IS NULL").selectExpr(
        *REPLICA, f"{span.INDEX} AS kind", "producer_id", "last_offset AS at", "first_offset AS since"
    )
    answered = side.states.select(*REPLICA, f.explode("open").alias("txn")).selectExpr(
        *REPLICA, f"{span.OPEN} AS kind", "txn[0] AS producer_id", "txn[2] AS at", "CAST(-1 AS long) AS since"
    )

    def pack(rows: pa.Table) -> pa.Table:
        head = {name: rows.column(name)[0].as_py() for name in (*REPLICA_PLACE, "chunk")}
        epochs = np.full(len(rows), -1)
        kind, *others = (rows.column(name).to_numpy() for name in ("kind", "producer_id", "at", "since"))
        spans = span.side_spans(head["broker"], -1, np.array([kind, epochs, *others]))
        return pa.Table.from_pylist([{**head, "spans": spans.tobytes()}], schema)

    rows = aborted.unionAll(answered).withColumn("chunk", f.expr(f"at div {chunk_offsets}"))
    return rows.groupBy("chunk", *REPLICA).applyInArrow(pack, span.PACKED_SPANS)


def _rows_of_file(file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    head = {name: file[name] for name in (*REPLICA_PLACE, "segment")}
    if file["problem"] is not None:
        yield {**head, "problem": file["problem"]}
    for epoch, start, end in np.frombuffer(file["epochs"], span.EPOCH).tolist():
        yield {**head, "settled": EPOCHS, "leader_epoch": epoch, "base_offset": start, "end_offset": end}
    for region, records, digest in np.frombuffer(file["plain"], span.PLAIN).tolist():
        sums = {"region": region, "records": records, "digest": digest}
        yield {**head, "settled": COMMITTED, "transactional": False, **sums}


def _settled_rows(spans: SortedSpans, is_settled: Flags) -> Iterator[dict[str, Any]]:
    """Yield sums of the settled spans of each replica, and a row with beliefs for each file."""
    is_data = spans.is_data & is_settled
    kinds = {
        MARKER: spans.is_marker & is_settled,
        ABORTED: is_data & spans.is_aborted,
        COMMITTED: is_data & ~spans.is_aborted,
    }
    for name, is_kind in kinds.items():
        rows = spans.spans[is_kind]
        for broker, region in product(np.unique(rows["broker"]).tolist(), np.unique(rows["region"]).tolist()):
            here = rows[(rows["broker"] == broker) & (rows["region"] == region)]
            sums = {"records": int(here["records"].sum()), "digest": int(np.bitwise_xor.reduce(here["digest"]))}
            yield {"broker": broker, "region": region, "settled": name, "transactional": True, **sums}
    yield from spans.beliefs(is_data)


def _as_table(spans: Array, head: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    is_data = spans["kind"] == span.DATA
    columns: dict[str, Any] = {
        **{name: pa.repeat(value, len(spans)) for name, value in head.items()},
        "broker": spans["broker"],
        "segment": spans["segment"],
        **{column: spans[name] for name, column in span.LOG_FIELDS.items()},
        "region": spans["region"].astype(np.int32),
        "transactional": spans["producer"] >= 0,
        "control": ~is_data,
        "marker": [_NAMES.get(kind) for kind in spans["kind"].tolist()],
        "first_in_batch": np.ones(len(spans), np.bool_),
    }
    nulls = {field.name: pa.nulls(len(spans), field.type) for field in schema}
    return pa.Table.from_pydict({**nulls, **columns}, schema)


def abort_markers(spark: SparkSession, segments: Sequence[ReplicaSegment]) -> DataFrame:
    """Return `PRODUCER_SPANS` of every ABORT."""
    read = partial(_spans_of_file, keep=lambda spans: spans["kind"] == span.ABORTS)
    return rows_of_files(spark, segments, PRODUCER_SPANS, read)


def markers_after(points: DataFrame, segments: Sequence[ReplicaSegment]) -> DataFrame:
    """Return `PRODUCER_SPANS` of the next marker of these producers in each log, and of some later ones.

    ``points``: PARTITION, ``producer_id``, ``base_offset``.
    """
    by_file = (
        points.join(numbered(points.sparkSession, segments), PARTITION)
        .groupBy("segment")
        .agg(f.collect_list("producer_id").alias("producers"), f.collect_list("base_offset").alias("offsets"))
    )

    def read(
        segment: ReplicaSegment, index: int, producers: Sequence[int], offsets: Sequence[int], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        def follow(spans: Array) -> Flags:
            is_marker = np.isin(spans["kind"], (span.COMMITS, span.ABORTS))
            marks = (spans["producer"][is_marker], spans["at"][is_marker])
            return np.isin(spans["at"], first_after(np.array(producers), np.array(offsets), marks))

        return _spans_of_file(segment, index, schema, follow)

    return read_segments(by_file, segments, PRODUCER_SPANS, read)


def _spans_of_file(
    segment: ReplicaSegment, index: int, schema: pa.Schema, keep: Callable[[Array], Flags]
) -> Iterator[pa.RecordBatch]:
    """Yield some spans of a file, up to where it is unreadable: `unsettled_spans` reports why."""
    head = dict(zip(PLACE, segment.place, strict=True))
    for part in span_arrays(segment):
        if not isinstance(part, str):
            spans = span.packed(part, segment.broker, index)
            yield from _as_table(spans[keep(spans)], head, schema).to_batches()
