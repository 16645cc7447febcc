"""Each replica's beliefs about its producer spans, which stand for batches, and differences between replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.consistency import side_files
from checkers.evidence.parse import DISK
from checkers.evidence.schemas import ENTRIES
from checkers.evidence.tables import PARTITION, REPLICA, Evidence, RunPartition, checkpointed, colocated, place_of
from checkers.finding import first_rows
from checkers.reduction.segments import BEYOND, COMPARED
from checkers.reduction.unsettled_spans import EPOCHS, MARKER
from checkers.replay import batch_outcomes as outcomes
from checkers.replay.truth import markers_seen, with_stable_ends, with_whole_beyond
from harness.run_folder.store import AFTER_REJOIN

_DIGESTS = (outcomes.COMMITTED, outcomes.ABORTED, outcomes.OPEN, MARKER)


@dataclass(frozen=True)
class Beliefs:
    """Planned tables that are derived from producer spans.

    ``side``: the evidence of side files, with the unsettled control batches as its entries. ``settled``: the packed
    beliefs about settled spans, by file. ``tails``: from `unreplicated_tails`. ``damaged``: from `Evidence.damaged`, of
    segments too. ``data_spans``: the unsettled spans of data, with `BELIEF` and ``misjudged``. ``index_spans``:
    ``.txnindex`` entries with a marker inside. ``summary``: a row for each replica. The others: as in `judged`.
    """

    side: Evidence
    settled: DataFrame
    tails: DataFrame
    damaged: DataFrame
    data_spans: DataFrame
    overtaken: DataFrame
    index_spans: DataFrame
    summary: DataFrame
    replicas: DataFrame
    opened: DataFrame

    @classmethod
    def of(cls, side: Evidence, ends: DataFrame, spans: DataFrame) -> Self:
        """Plan the tables. ``ends``: the replicas with log ends and bounds. ``spans``: `unsettled_spans.SPANS`."""
        problems = spans.where("problem IS NOT NULL").select(*REPLICA, "problem")
        damaged = problems.unionByName(side.damaged)
        # Rows that stand for many spans, or for a file that cannot be read, are neither data nor control batches.
        sound = spans.where("control IS NOT NULL")
        side = replace(side, entries=as_entries(sound.where("control")))
        believed = outcomes.with_beliefs(sound)
        overtaken = outcomes.overtaken_transactions(sound, believed).localCheckpoint(eager=False)
        markers = checkpointed(markers_seen(side))
        index_spans = checkpointed(_index_spans(side, markers))
        data_spans = _with_misjudged(believed, markers, overtaken, index_spans).localCheckpoint(eager=False)
        summary = checkpointed(_summary(sound, data_spans, spans))
        opened = outcomes.open_transactions(data_spans)
        replicas = with_whole_beyond(colocated(ends), summary.select(*REPLICA, "held_beyond")).join(
            summary.groupBy(*PARTITION).agg(f.max("transactional").alias("has_transactions")), PARTITION, "left"
        )
        replicas = checkpointed(with_stable_ends(replicas, opened))
        of_epochs = spans.where(f"settled = '{EPOCHS}'").withColumn("last_offset", f.col("end_offset"))
        tails = outcomes.unreplicated_tails(of_epochs, side.epochs)
        settled = spans.where("beliefs IS NOT NULL").select("segment", "beliefs")
        return cls(side, settled, tails, damaged, data_spans, overtaken, index_spans, summary, replicas, opened)

    @property
    def ended_elsewhere(self) -> DataFrame:
        """REPLICA, ``from``, ``to``: the first batches of transactions that are open on some replicas only."""
        count = f.count("*").over(Window.partitionBy(*PARTITION)).alias("replicas")
        replicas = self.replicas.select(*REPLICA, "bound", count)
        return (
            colocated(self.opened.join(colocated(replicas), REPLICA))
            .withColumn("holders", f.count("*").over(Window.partitionBy(*outcomes.PRODUCER, "first_offset")))
            .where("holders < replicas AND first_offset < bound")
            .join(colocated(self.damaged.select(*PARTITION).distinct()), PARTITION, "left_anti")
            .selectExpr(*REPLICA, "first_offset AS from", "first_last_offset AS to")
        )

    @property
    def spans_to_include(self) -> DataFrame:
        """The producer spans that become batches of the evidence: open, overtaken and overtaking ones."""
        both = "explode(array(offset, overtaken_at)) AS base_offset"
        shown = colocated(self.overtaken.selectExpr(*REPLICA, both, "true AS shown").distinct())
        spans = self.data_spans.join(shown, ["base_offset", *REPLICA], "left")
        return spans.where("belief = 'open' OR shown").drop("shown")

    def small_tables(self) -> dict[str, DataFrame]:
        """Return the tables that decide which records are read."""
        return {
            **{name: getattr(self, name) for name in ("summary", "index_spans", "tails", "replicas", "damaged")},
            "doubts": first_rows(side_files.compare(self.side, self.replicas, self.opened, self.data_spans)),
            "unsure": first_rows(side_files.compare_spans(self.side.aborts, self.side.epochs, self.replicas)),
        }


def differing_places(summary: Sequence[dict[str, Any]]) -> set[RunPartition]:
    """Return the partitions whose replicas differ in batches or beliefs, or have misjudged spans."""
    digests_of: dict[RunPartition, set[tuple[Any, ...]]] = {}
    for row in summary:
        digests_of.setdefault(place_of(row), set()).add(tuple(row[belief] for belief in _DIGESTS))
    return {place for place, digests in digests_of.items() if len(digests) > 1} | {
        place_of(row) for row in summary if row["misjudged"]
    }


def as_entries(producer_spans: DataFrame) -> DataFrame:
    """Return producer spans as `ENTRIES` of batches without records."""
    values = {"snapshot": f.lit(AFTER_REJOIN), "source": f.lit(DISK), "judged": f.lit(True)}
    values |= {name: f.col(name) for name in producer_spans.columns}
    return producer_spans.select(
        *(values.get(field.name, f.lit(None)).cast(field.dataType).alias(field.name) for field in ENTRIES)
    )


def _index_spans(side: Evidence, markers: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``span_from``, ``span_to`` of each ``.txnindex`` entry with a marker inside."""
    index_spans = side.aborts.where("first_offset IS NOT NULL").selectExpr(
        *REPLICA, "producer_id", "first_offset AS span_from", "last_offset AS span_to"
    )
    marked = outcomes.with_first_marker(index_spans, markers, at="span_from", is_big=True)
    return marked.where("first_marker < span_to").drop("first_marker", "marker_outcome")


def _with_misjudged(believed: DataFrame, markers: DataFrame, overtaken: DataFrame, index_spans: DataFrame) -> DataFrame:
    """Add ``misjudged``: whether the deciding marker of a transactional span may belong to another transaction.

    A span is misjudged if the deciding marker is not the first one that any replica shows, if this log alone shows that
    a marker was missed, or if another marker lies inside the ``.txnindex`` entry of the transaction.
    """
    marked_spans = index_spans.select(*outcomes.PRODUCER, "span_from", "span_to")
    in_spans = (
        colocated(believed.where("transactional").join(marked_spans, [*outcomes.PRODUCER]))
        .where("base_offset <= span_to AND end_offset >= span_from")
        .selectExpr(*REPLICA, "producer_id", "base_offset", "true AS in_span")
        .distinct()
    )
    # -1 stands for no marker, as nulls do not join.
    decision = "coalesce(decided_by, -1) AS decision"
    passed = overtaken.selectExpr(*REPLICA, "producer_id", decision, "true AS passed").distinct()
    is_misjudged = f.expr(
        "transactional AND (NOT decided_by <=> first_marker OR in_span IS NOT NULL OR passed IS NOT NULL)"
    )
    return (
        outcomes.with_first_marker(believed, markers, at="base_offset", is_big=True)
        .join(colocated(in_spans), ["producer_id", "base_offset", *REPLICA], "left")
        .selectExpr("*", decision)
        .join(colocated(passed), ["producer_id", "decision", *REPLICA], "left")
        .withColumn("misjudged", is_misjudged)
        .drop("first_marker", "marker_outcome", "in_span", "passed", "decision")
    )


def _summary(sound: DataFrame, data_spans: DataFrame, spans: DataFrame) -> DataFrame:
    """Return REPLICA, digests of the compared batches by belief, ``records`` and what `differing_places` needs."""
    columns = [*REPLICA, "region", "digest", "records", "transactional"]
    markers = sound.where("control").selectExpr(*columns, f"'{MARKER}' AS belief", "false AS misjudged")
    settled = spans.where(f"settled != '{EPOCHS}'").selectExpr(*columns, "settled AS belief", "false AS misjudged")
    compared = f.when(f.col("region") == COMPARED, f.col("digest"))
    return (
        data_spans.select(*columns, "belief", "misjudged")
        .unionByName(markers)
        .unionByName(settled)
        .groupBy(*REPLICA)
        .agg(
            *(f.bit_xor(f.when(f.col("belief") == belief, compared)).alias(belief) for belief in _DIGESTS),
            f.sum(f.when(f.col("region") == BEYOND, f.col("records")).otherwise(0)).alias("held_beyond"),
            f.sum("records").alias("records"),
            f.count_if("misjudged").alias("misjudged"),
            f.count_if(f.col("belief") == outcomes.OPEN).alias("open_spans"),
            f.max("transactional").alias("transactional"),
        )
    )
