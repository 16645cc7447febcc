"""Reduce copies of any size to the evidence that the checkers need.

First the partitions are cleared in which no checker can find anything (`consistent_partitions`). Each other partition
takes four steps:

1. the small files and the log ends give the bound of the partition;
2. `producer_spans` reduces the files to spans, and `beliefs` derives each replica's belief about each span;
3. where replicas differ in batches or in beliefs, `candidate_keys` selects the keys whose final state may differ;
4. `read_records` reads the records of those keys, the first records of transactions that are open on some but not all
   replicas, and the markers of their producers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

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
    load_side_files,
    place_of,
    spread_over,
)
from checkers.reduction.beliefs import Beliefs, as_entries, differing_places
from checkers.reduction.candidate_keys import candidate_keys, packed_beliefs
from checkers.reduction.consistent_partitions import Facts, cleared_partitions
from checkers.reduction.segments import ReplicaSegment, producer_spans, read_records, replica_segments
from checkers.replay.truth import bounded
from checkers.replay.unreplicated_tails import side_files_before
from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from harness.broker_files.copies.copies import Copies

Rows = list[dict[str, Any]]
Cuts = dict[tuple[Any, ...], int]
"""The offset at which each REPLICA's log is cut: the start of its unreplicated tail."""


@dataclass(frozen=True)
class Reduced:
    """Copies after the reduction.

    ``evidence``: its entries are the records that were read; None if there is nothing to judge. ``replicas``: the
    parameter of `judged.judge`. ``tables``: the rows of ``replicas``, ``doubts`` (from `side_files`, for the complete
    logs), ``unsure`` (from `txnindex_disagreement`) and ``damaged`` (REPLICA and ``problem``). ``left_out``: the number
    of candidate keys that are not judged, by partition. ``cleared``: the partitions that were cleared.
    """

    evidence: Evidence | None
    replicas: DataFrame | None
    tables: Mapping[str, Rows]
    left_out: Mapping[RunPartition, int]
    cleared: frozenset[RunPartition] = frozenset()


def reduce_copies(spark: SparkSession, copies: Sequence[Copies], tasks: int) -> Reduced:
    """Run all steps; each of the ``copies`` stands for a run. ``tasks``: the number of concurrent Spark tasks."""
    # The answers of brokers over the wire are compared by the checkers only.
    served, copied = ([cluster for cluster in copies if cluster.served is is_served] for is_served in (True, False))
    facts, damaged = _facts(copied)
    readable = _without(copied, {place_of(row) for row in damaged})
    cleared, replicas = cleared_partitions(spark, readable, facts, tasks)
    tables: dict[str, Rows] = {"replicas": replicas, "doubts": [], "unsure": [], "damaged": damaged}
    remaining = served + _without(readable, cleared)
    if not remaining:
        return Reduced(None, None, tables, {}, frozenset(cleared))
    with spread_over(spark, tasks):
        reduced = _reduce(spark, remaining, tasks)
    tables = {name: rows + list(reduced.tables[name]) for name, rows in tables.items()}
    return replace(reduced, tables=tables, cleared=frozenset(cleared))


def _facts(copies: Sequence[Copies]) -> tuple[Facts, Rows]:
    """Return the offsets in checkpoints, and the damage (REPLICA and ``problem``) of unreadable files."""
    facts: Facts = {}
    damaged = []
    for cluster in copies:
        for copy in cluster.replicas:
            replica = (cluster.run_id, *copy.place, copy.broker)
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


def _reduce(spark: SparkSession, copies: Sequence[Copies], tasks: int) -> Reduced:
    """Run the four steps for partitions that were not cleared."""
    side = load_side_files(spark, copies)
    cut: Cuts = {}
    segments, beliefs, tables = _read_beliefs(spark, copies, side, cut, tasks)
    while tables["tails"]:
        # Read the files again, without the unreplicated tails.
        cut = cut_further(cut, {_replica(row): row["stale_from"] for row in tables["tails"]})
        segments, beliefs, tables = _read_beliefs(spark, copies, side, cut, tasks)
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
    """Add the cuts for new unreplicated tails.

    Raises `RuntimeError` if a replica was already cut at or before its new tail, as the caller would repeat forever.
    """
    again = sorted(replica for replica, stale_from in new.items() if stale_from >= cut.get(replica, stale_from + 1))
    if again:
        raise RuntimeError(f"unreplicated tails begin where the logs are already cut: {again}")
    return {**cut, **new}


def _read_beliefs(
    spark: SparkSession, copies: Sequence[Copies], side: Evidence, cut: Cuts, tasks: int
) -> tuple[list[ReplicaSegment], Beliefs, dict[str, Rows]]:
    """Read all files, up to the cuts of their replicas; return the files, the beliefs and their small tables."""
    schema = "run string, topic string, partition int, broker int, stale_from long"
    tails = checkpointed(spark.createDataFrame([(*replica, offset) for replica, offset in cut.items()], schema))
    states = colocated(side.states).join(tails, REPLICA, "left")
    ends = checkpointed(bounded(states.withColumn("log_end", f.least("log_end", "stale_from"))))
    facts = {_replica(row): row.asDict() for row in ends.collect()}
    segments = replica_segments(copies, facts, ("bound", "shortest", "log_end"))
    spans = producer_spans(spark, segments).repartition(tasks, "producer_id", *REPLICA).localCheckpoint(eager=False)
    with ThreadPoolExecutor(1) as pool:
        # The next tables are planned during the scan, as planning takes as long.
        read = pool.submit(spans.count)
        beliefs = Beliefs.of(side_files_before(side, tails), ends, spans)
        tables = _in_one_job(beliefs.small_tables())
        read.result()
    return segments, beliefs, tables()


def _replica(row: Any) -> tuple[Any, ...]:
    return (*place_of(row), row["broker"])


def _in_one_job(tables: Mapping[str, DataFrame]) -> Callable[[], dict[str, Rows]]:
    """Return a function that computes small tables in one job and returns their rows."""
    rows = [
        colocated(table).select(f.lit(name).alias("table"), f.to_json(f.struct(*table.columns)).alias("row"))
        for name, table in tables.items()
    ]
    union = reduce(DataFrame.unionAll, rows)

    def compute() -> dict[str, Rows]:
        rows_by_table: dict[str, Rows] = {name: [] for name in tables}
        for row in union.collect():
            empty_row = dict.fromkeys(tables[row["table"]].columns)
            rows_by_table[row["table"]].append({**empty_row, **json.loads(row["row"])})
        return rows_by_table

    return compute


def _evidence(
    beliefs: Beliefs, segments: Sequence[ReplicaSegment], records: Mapping[RunPartition, int], tasks: int
) -> tuple[Evidence | None, dict[RunPartition, int]]:
    """Return the evidence for the checkers, or None, and the number of keys that are left out, by partition.

    ``records``: the number of records of each partition to judge.
    """
    entries, left_out = _judged_keys(beliefs, segments, records, tasks)
    batches = as_entries(beliefs.spans_to_include).join(
        entries.select(*REPLICA, "base_offset"), ["base_offset", *REPLICA], "left_anti"
    )
    with_batches = checkpointed(entries.unionByName(batches.select(*ENTRIES.names)))
    index_spans = beliefs.index_spans.select(*PARTITION, "producer_id")
    producers = checkpointed(with_batches.select(*PARTITION, "producer_id").unionByName(index_spans).distinct())
    if producers.isEmpty():
        return None, left_out
    markers = beliefs.side.entries.join(producers, ["producer_id", *PARTITION], "left_semi").select(*ENTRIES.names)
    return replace(beliefs.side, entries=checkpointed(with_batches.unionByName(markers))), left_out


def _judged_keys(
    beliefs: Beliefs, segments: Sequence[ReplicaSegment], records: Mapping[RunPartition, int], tasks: int
) -> tuple[DataFrame, dict[RunPartition, int]]:
    """Return `ENTRIES` of every record of each candidate key, and the number of keys left out, by partition.

    The entries include the first batch of each transaction that may be stuck.
    """
    packed = packed_beliefs(beliefs.data_spans)
    keys = candidate_keys(packed, segments, records, tasks).localCheckpoint()
    more = keys.where("left_out IS NOT NULL").groupBy(*PARTITION).agg(f.sum("left_out").alias("keys")).collect()
    ranges = keys.where("broker IS NOT NULL").select(*REPLICA, "from", "to").unionByName(beliefs.ended_elsewhere)
    return checkpointed(read_records(ranges, segments)), {place_of(row): row["keys"] for row in more}
