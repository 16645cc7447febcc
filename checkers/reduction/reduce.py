"""Reduce copies of any size to the evidence that the checkers need.

First the partitions are cleared in which no checker can find anything (`consistent_spans`). Each other partition
takes four steps:

1. the small files and the log ends give the bound of the partition;
2. `unsettled_spans` reduces the files to spans, and `beliefs` derives each replica's belief about each span;
3. where replicas differ in batches or in beliefs, `candidate_keys` selects the keys whose final state may differ;
4. `read_records` reads the records of those keys, the first records of transactions that are open on some but not all
   replicas, and the markers of their producers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from checkers.consistency.side_files import with_served_aborts
from checkers.evidence.copies import replica_facts
from checkers.evidence.schemas import ENTRIES
from checkers.evidence.tables import (
    PARTITION,
    REPLICA,
    REPLICA_PLACE,
    Evidence,
    RunPartition,
    checkpointed,
    colocated,
    load_copies,
    place_of,
    spread_over,
)
from checkers.reduction.beliefs import Beliefs, as_entries, differing_places
from checkers.reduction.candidate_keys import candidate_keys, packed_beliefs
from checkers.reduction.consistent_spans import Facts, cleared_partitions
from checkers.reduction.packed_spans import CHUNK_OFFSETS
from checkers.reduction.segments import ReplicaSegment, read_records, replica_segments
from checkers.reduction.unsettled_spans import DisputedRanges, abort_markers, markers_after, unsettled_spans
from checkers.replay.batch_outcomes import side_files_before
from checkers.replay.truth import bounded
from harness.broker_files.copies.copies import Copies
from harness.broker_files.segments.batches import CorruptLogError
from harness.spark.jobs import describe, threads

Rows = list[dict[str, Any]]
Cuts = dict[tuple[Any, ...], int]
"""The offset at which each REPLICA's log is cut: the start of its unreplicated tail."""


@dataclass(frozen=True)
class Reduced:
    """Copies after the reduction.

    ``evidence``: its entries are the records that were read; None if there is nothing to judge. ``replicas``: the
    parameter of `judged.judge`. ``tables``: the rows of ``replicas``, ``damaged`` (REPLICA and ``problem``), ``doubts``
    and ``unsure`` (from `side_files`, about the complete logs). ``left_out``: the number of candidate keys that are not
    judged, by partition. ``cleared``: the partitions that were cleared.
    """

    evidence: Evidence | None
    replicas: DataFrame | None
    tables: Mapping[str, Rows]
    left_out: Mapping[RunPartition, int]
    cleared: frozenset[RunPartition] = frozenset()


def reduce_copies(
    spark: SparkSession, copies: Sequence[Copies], tasks: int, chunk_offsets: int = CHUNK_OFFSETS
) -> Reduced:
    """Run all steps; each of the ``copies`` stands for a run. ``tasks``: the number of concurrent Spark tasks."""
    # The answers of brokers over the wire are compared by the checkers only.
    served, copied = ([cluster for cluster in copies if cluster.served is is_served] for is_served in (True, False))
    facts, damaged = _facts(copied)
    readable = _without(copied, {place_of(row) for row in damaged})
    describe(spark, "find the partitions that agree")
    cleared, replicas = cleared_partitions(spark, readable, facts, tasks)
    tables: dict[str, Rows] = {"replicas": replicas, "doubts": [], "unsure": [], "damaged": damaged}
    remaining = served + _without(readable, cleared)
    if not remaining:
        return Reduced(None, None, tables, {}, frozenset(cleared))
    with spread_over(spark, tasks):
        reduced = _reduce(spark, remaining, tasks, chunk_offsets)
    tables = {name: rows + list(reduced.tables[name]) for name, rows in tables.items()}
    return replace(reduced, tables=tables, cleared=frozenset(cleared))


def _facts(copies: Sequence[Copies]) -> tuple[Facts, Rows]:
    """Return the offsets in checkpoints, and the damage (REPLICA and ``problem``) of unreadable files."""
    facts: Facts = {}
    damaged = []
    for run_id, copy in ((cluster.run_id, copy) for cluster in copies for copy in cluster.replicas):
        replica = (run_id, *copy.place, copy.broker)
        try:
            facts[replica] = replica_facts(copy.folder)
        except (CorruptLogError, OSError) as error:
            damaged.append({**dict(zip(REPLICA_PLACE, replica, strict=True)), "problem": str(error)})
    return facts, damaged


def _without(copies: Sequence[Copies], places: set[RunPartition]) -> list[Copies]:
    """Return the copies without the replicas of these partitions; copies without replicas are left out."""
    remaining = []
    for cluster in copies:
        replicas = tuple(copy for copy in cluster.replicas if (cluster.run_id, *copy.place) not in places)
        remaining += [replace(cluster, replicas=replicas)] if replicas else []
    return remaining


def _reduce(spark: SparkSession, copies: Sequence[Copies], tasks: int, chunk_offsets: int) -> Reduced:
    side = load_copies(spark, copies, with_logs=False)
    cut: Cuts = {}
    disputed: dict[RunPartition, set[tuple[int, int, int]]] = {}
    while True:
        segments, beliefs, tables = _read_beliefs(
            spark, copies, side, cut=cut, disputed=disputed, tasks=tasks, chunk_offsets=chunk_offsets
        )
        if tables["tails"]:
            # Read the files again, without the unreplicated tails.
            cut = cut_further(cut, {_replica(row): row["stale_from"] for row in tables["tails"]})
        elif not _dispute(disputed, tables["index_spans"], chunk_offsets):
            break
    summary = tables["summary"]
    differing = differing_places(summary)
    if not (differing or tables["index_spans"] or any(row["open_spans"] for row in summary)):
        return Reduced(None, beliefs.replicas, tables, {})
    # A partition with a damaged file is not judged, as the rest of the file is unreadable.
    differing -= {place_of(row) for row in tables["damaged"]}
    records = dict.fromkeys(differing, 0)
    for row in summary:
        if (place := place_of(row)) in records:
            records[place] += row["records"]
    evidence, left_out = _evidence(beliefs, segments, records, tasks)
    return Reduced(evidence, beliefs.replicas, tables, left_out)


def cut_further(cut: Cuts, new: Cuts) -> Cuts:
    """Add the cuts for new tails. Raises `RuntimeError` for a replica that was already cut there, to repeat no step."""
    again = sorted(replica for replica, stale_from in new.items() if stale_from >= cut.get(replica, stale_from + 1))
    if again:
        raise RuntimeError(f"unreplicated tails begin where the logs are already cut: {again}")
    return {**cut, **new}


def _dispute(disputed: dict[RunPartition, set[tuple[int, int, int]]], index_spans: Rows, chunk_offsets: int) -> bool:
    """Add the index entries with a marker inside that span chunks, which keep all else; return whether any is new."""
    before = sum(map(len, disputed.values()))
    for row in index_spans:
        entry = row["producer_id"], row["span_from"], row["span_to"]
        if row["span_from"] // chunk_offsets != row["span_to"] // chunk_offsets:
            disputed.setdefault(place_of(row), set()).add(entry)
    return sum(map(len, disputed.values())) > before


def _read_beliefs(
    spark: SparkSession,
    copies: Sequence[Copies],
    side: Evidence,
    *,
    cut: Cuts,
    disputed: DisputedRanges,
    tasks: int,
    chunk_offsets: int,
) -> tuple[list[ReplicaSegment], Beliefs, dict[str, Rows]]:
    """Read all files, up to the cuts of their replicas; return the files, the beliefs and their small tables."""
    schema = "run string, topic string, partition int, broker int, stale_from long"
    tails = checkpointed(spark.createDataFrame([(*replica, offset) for replica, offset in cut.items()], schema))
    states = colocated(side.states).join(tails, REPLICA, "left")
    ends = checkpointed(bounded(states.withColumn("log_end", f.least("log_end", "stale_from"))))
    facts = {_replica(row): row.asDict() for row in ends.collect()}
    segments = replica_segments(copies, facts, ("bound", "shortest", "log_end"))
    describe(spark, f"read the transactions in {len(segments)} segments")
    side = side_files_before(side, tails)
    listing = [segment for segment in segments if facts[*segment.place, segment.broker]["aborted"]]
    if listing:
        # A broker lists the first offsets of aborted transactions, not their ends.
        side = with_served_aborts(replace(side, entries=as_entries(abort_markers(spark, listing))))
    spans = unsettled_spans(spark, segments, side, disputed=disputed, tasks=tasks, chunk_offsets=chunk_offsets)
    spans = spans.repartition(tasks, "producer_id", *REPLICA).localCheckpoint(eager=False)
    with threads(spark, 1) as pool:
        # The next tables are planned during the scan, as planning takes as long.
        read = pool.submit(spans.count)
        beliefs = Beliefs.of(side, ends, spans)
        tables = _in_one_job(beliefs.small_tables())
        read.result()
    return segments, beliefs, tables()


def _replica(row: Any) -> tuple[Any, ...]:
    return (*place_of(row), row["broker"])


def _in_one_job(tables: Mapping[str, DataFrame]) -> Callable[[], dict[str, Rows]]:
    """Return a function that computes small tables in one job and returns their rows."""
    rows = (
        colocated(table).selectExpr(f"'{name}' AS table", f"to_json(struct({', '.join(table.columns)})) AS row")
        for name, table in tables.items()
    )
    union = reduce(DataFrame.unionAll, rows)

    def compute() -> dict[str, Rows]:
        rows_by_table: dict[str, Rows] = {name: [] for name in tables}
        for name, row in union.collect():
            rows_by_table[name].append({**dict.fromkeys(tables[name].columns), **json.loads(row)})
        return rows_by_table

    return compute


def _evidence(
    beliefs: Beliefs, segments: Sequence[ReplicaSegment], records: Mapping[RunPartition, int], tasks: int
) -> tuple[Evidence | None, dict[RunPartition, int]]:
    """Return the evidence for the checkers, or None, and the number of keys that are left out, by partition."""
    entries, left_out = _judged_keys(beliefs, segments, records, tasks)
    batches = as_entries(beliefs.spans_to_include).join(
        entries.select(*REPLICA, "base_offset"), ["base_offset", *REPLICA], "left_anti"
    )
    with_batches = checkpointed(entries.unionByName(batches.select(*ENTRIES.names)))
    index_spans = beliefs.index_spans.selectExpr(*PARTITION, "producer_id", "span_from AS base_offset")
    points = checkpointed(with_batches.select(*index_spans.columns).unionByName(index_spans).distinct())
    if points.isEmpty():
        return None, left_out
    unsettled = beliefs.side.entries.join(points, ["producer_id", *PARTITION], "left_semi").select(*ENTRIES.names)
    markers = unsettled.unionByName(as_entries(markers_after(points, segments)))
    entries = with_batches.unionByName(markers.dropDuplicates(["base_offset", *REPLICA]))
    return replace(beliefs.side, entries=checkpointed(entries)), left_out


def _judged_keys(
    beliefs: Beliefs, segments: Sequence[ReplicaSegment], records: Mapping[RunPartition, int], tasks: int
) -> tuple[DataFrame, dict[RunPartition, int]]:
    """Return `ENTRIES` of candidate keys, and of first batches that may be stuck; and the number of keys left out."""
    packed = packed_beliefs(beliefs.data_spans).unionByName(beliefs.settled)
    describe(packed.sparkSession, "compare the keys of partitions that differ")
    keys = candidate_keys(packed, segments, records, tasks).localCheckpoint()
    more = keys.where("left_out IS NOT NULL").groupBy(*PARTITION).agg(f.sum("left_out").alias("keys")).collect()
    describe(packed.sparkSession, "read the records of keys that may differ")
    ranges = keys.where("broker IS NOT NULL").select(*REPLICA, "from", "to").unionByName(beliefs.ended_elsewhere)
    return checkpointed(read_records(ranges, segments)), {place_of(row): row["keys"] for row in more}
