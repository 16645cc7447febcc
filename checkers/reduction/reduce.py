"""Copies of any size, reduced to the evidence that the checkers need: they judge what is left as they judge a run.

First partitions are let go in which nothing can be found (`settled`). What is left takes four steps:

1. what the small files say, and where logs end: the bound of each partition;
2. `scan`: what is left of the files are stretches, and what each replica believes of them (`beliefs`);
3. where replicas differ in batches or in beliefs, `sieve`: the keys whose final state may differ;
4. `pick`: those keys' records, the first ones of transactions that are open on some replicas alone, and the markers of
   their producers.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.copies import replica_facts
from checkers.evidence.files import segment_files, shares
from checkers.evidence.schemas import ENTRIES
from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated, load_side_files, place_of
from checkers.reduction.beliefs import Beliefs, as_entries, differing_places
from checkers.reduction.pick import pick
from checkers.reduction.scan import scan
from checkers.reduction.settled import settle
from checkers.reduction.sieve import TASK_BYTES, buckets_of, sieve
from checkers.replay.truth import bounded
from checkers.replay.unreplicated_tails import side_files_before
from harness.brokers.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from checkers.evidence.files import SegmentFile
    from checkers.evidence.tables import Evidence, Place
    from checkers.reduction.settled import Facts
    from harness.brokers.copies.copies import Copies

Rows = list[dict[str, Any]]
Cuts = dict[tuple[Any, ...], int]
"""Where each REPLICA's log is taken to end, because a stale tail begins there."""


@dataclass(frozen=True)
class Reduced:
    """What is left of copies.

    ``evidence``: its entries are the picked ones; None where nothing is left to judge. ``replicas`` as `judged.judge`
    takes them. ``told``: the rows of ``replicas``, ``doubts`` (what `side_files` says of the whole logs), ``unsure``
    (what `txnindex_disagreement` says) and ``damaged`` (REPLICA and ``problem``). ``left_out``: how many keys more
    differ than are judged, by place. ``let_go``: the places in which nothing can be found.
    """

    evidence: Evidence | None
    replicas: DataFrame | None
    told: Mapping[str, Rows]
    left_out: Mapping[Place, int]
    let_go: frozenset[Place] = frozenset()


def reduce_copies(spark: SparkSession, copies: Sequence[Copies], tasks: int) -> Reduced:
    """Run the steps; each of the ``copies`` stands for a run. ``tasks``: how many at a time."""
    # What brokers say over the wire is no part of what is plain.
    served, copied = [one for one in copies if one.served], [one for one in copies if not one.served]
    facts, damaged = _facts(copied)
    readable = _without(copied, {place_of(row) for row in damaged})
    settled = settle(spark, readable, facts, tasks)
    told: dict[str, Rows] = {"replicas": settled.replicas, "doubts": [], "unsure": [], "damaged": damaged}
    doubtful = served + _without(readable, settled.places)
    if not doubtful:
        return Reduced(None, None, told, {}, frozenset(settled.places))
    reduced = _reduce(spark, doubtful, tasks)
    return replace(
        reduced,
        told={name: rows + list(reduced.told[name]) for name, rows in told.items()},
        let_go=frozenset(settled.places),
    )


def _facts(copies: Sequence[Copies]) -> tuple[Facts, Rows]:
    """Return what is known beside each log, and the damage (REPLICA and ``problem``) of what cannot be read."""
    facts: Facts = {}
    damaged = []
    for one in copies:
        for copy in one.replicas:
            replica = (one.run_id, *copy.place, copy.broker)
            try:
                facts[replica] = replica_facts(copy.folder)
            except (CorruptLogError, OSError) as error:
                damaged.append({**dict(zip(REPLICA, replica, strict=True)), "problem": str(error)})
    return facts, damaged


def _without(copies: Sequence[Copies], places: set[Place]) -> list[Copies]:
    """Return the copies without those of these places, where any are left."""
    left = [
        replace(one, replicas=tuple(copy for copy in one.replicas if (one.run_id, *copy.place) not in places))
        for one in copies
    ]
    return [one for one in left if one.replicas]


def _reduce(spark: SparkSession, copies: Sequence[Copies], tasks: int) -> Reduced:
    """Take the steps for partitions that are in doubt."""
    side = load_side_files(spark, copies)
    cut: Cuts = {}
    segments, beliefs, told = _believed(spark, copies, side, cut, tasks)
    while told["tails"]:
        # Once more, without the tails that were never replicated.
        cut = cut_further(cut, {_replica(row): row["stale_from"] for row in told["tails"]})
        segments, beliefs, told = _believed(spark, copies, side, cut, tasks)
    summary = told["summary"]
    differing = differing_places(summary)
    if not (differing or told["spans"] or any(row["open_stretches"] for row in summary)):
        return Reduced(None, beliefs.replicas, told, {})
    # Of a partition with a damaged file nothing is judged, and the rest of the file cannot be read.
    differing -= {place_of(row) for row in told["damaged"]}
    evidence, left_out = _evidence(spark, beliefs, segments, differing, tasks)
    return Reduced(evidence, beliefs.replicas, told, left_out)


def cut_further(cut: Cuts, found: Cuts) -> Cuts:
    """Return where replicas are cut once these stale tails are, too.

    Raises `RuntimeError` where that was done before, and would be for ever.
    """
    again = sorted(replica for replica, stale_from in found.items() if stale_from >= cut.get(replica, stale_from + 1))
    if again:
        raise RuntimeError(f"stale tails are found where they were cut already: {again}")
    return {**cut, **found}


def _believed(
    spark: SparkSession, copies: Sequence[Copies], side: Evidence, cut: Cuts, tasks: int
) -> tuple[list[SegmentFile], Beliefs, dict[str, Rows]]:
    """Read all files, up to where their replicas are cut; return them, what replicas believe, and its small tables."""
    schema = "run string, topic string, partition int, broker int, stale_from long"
    tails = checkpointed(spark.createDataFrame([(*replica, offset) for replica, offset in cut.items()], schema))
    ends = checkpointed(_ends(side, tails))
    segments = segment_files(copies, {_replica(row): row.asDict() for row in ends.collect()})
    stretches = scan(spark, segments).repartition(tasks, *PARTITION).localCheckpoint(eager=False)
    with ThreadPoolExecutor(1) as pool:
        # Planning what follows takes as long as reading.
        read = pool.submit(stretches.count)
        beliefs = Beliefs.of(side_files_before(side, tails), ends, stretches)
        tables = _at_once(beliefs.small_tables())
        read.result()
    return segments, beliefs, tables()


def _replica(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in REPLICA)


def _ends(side: Evidence, tails: DataFrame) -> DataFrame:
    """Return the replicas with their log ends and bounds."""
    states = colocated(side.states).join(tails, REPLICA, "left")
    return bounded(states.withColumn("log_end", f.least("log_end", "stale_from")))


def _at_once(tables: Mapping[str, DataFrame]) -> Callable[[], dict[str, Rows]]:
    """Return what computes small tables in one job, and gives their rows."""
    rows = [
        colocated(table).select(f.lit(name).alias("table"), f.to_json(f.struct(*table.columns)).alias("row"))
        for name, table in tables.items()
    ]
    whole = reduce(DataFrame.unionAll, rows)

    def compute() -> dict[str, Rows]:
        found: dict[str, Rows] = {name: [] for name in tables}
        for row in whole.collect():
            told = dict.fromkeys(tables[row["table"]].columns)
            found[row["table"]].append({**told, **json.loads(row["row"])})
        return found

    return compute


def _evidence(
    spark: SparkSession, beliefs: Beliefs, segments: Sequence[SegmentFile], differing: set[Place], tasks: int
) -> tuple[Evidence | None, dict[Place, int]]:
    """Return what the checkers are to judge, None where nothing came through, and how many keys are too many."""
    entries, left_out = _judged_keys(spark, beliefs, segments, differing, tasks)
    batches = as_entries(beliefs.to_show).join(
        entries.select(*REPLICA, "base_offset"), [*REPLICA, "base_offset"], "left_anti"
    )
    kept = checkpointed(entries.unionByName(batches.select(*ENTRIES.names)))
    spans = beliefs.spans.select(*PARTITION, "producer_id")
    producers = checkpointed(kept.select(*PARTITION, "producer_id").unionByName(spans).distinct())
    if producers.isEmpty():
        return None, left_out
    markers = beliefs.side.entries.join(producers, [*PARTITION, "producer_id"], "left_semi").select(*ENTRIES.names)
    return replace(beliefs.side, entries=checkpointed(kept.unionByName(markers))), left_out


def _judged_keys(
    spark: SparkSession, beliefs: Beliefs, segments: Sequence[SegmentFile], differing: set[Place], tasks: int
) -> tuple[DataFrame, dict[Place, int]]:
    """Return `ENTRIES` of every record of each key that may differ, and how many keys are too many, by place.

    And those of the first batch of each transaction that may be stuck.
    """
    read = {number: segment for number, segment in enumerate(segments) if segment.place in differing}
    stretches = (
        beliefs.in_doubt.where("transactional")
        .groupBy("segment")
        .agg(f.collect_list(f.struct("producer_id", "base_offset", "belief", "misjudged")).alias("told"))
    )
    files = spark.createDataFrame([(number,) for number in read], "segment int").join(stretches, "segment", "left")
    readers = max(1, len(shares(list(read.values()), TASK_BYTES)))
    keys = sieve(files.repartition(readers, "segment"), segments, buckets_of(segments), tasks).localCheckpoint()
    more = keys.where("left_out IS NOT NULL").groupBy(*PARTITION).agg(f.sum("left_out").alias("keys")).collect()
    wanted = keys.where("broker IS NOT NULL").select(*REPLICA, "from", "to").unionByName(beliefs.ended_elsewhere)
    return checkpointed(pick(spark, wanted, segments)), {place_of(row): row["keys"] for row in more}
