"""What each replica of a partition in doubt believes of the stretches of its log, and where that differs.

Works as the checkers do on batches (`replay`, `truth`): a stretch stands for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.consistency import side_files, txnindex_disagreement
from checkers.consistency.wire_answers import with_served_aborts
from checkers.evidence.parse import DISK
from checkers.evidence.schemas import ENTRIES
from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated, place_of
from checkers.reduction.scan import BEYOND, COMPARED
from checkers.replay.batch_outcomes import (
    ABORTED,
    COMMITTED,
    OPEN,
    decided,
    from_here_on,
    open_transactions,
    overtaken_transactions,
)
from checkers.replay.truth import markers_seen, with_stable_ends, with_whole_beyond
from checkers.replay.unreplicated_tails import unreplicated_tails
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from checkers.evidence.tables import Evidence, Place

_DIGESTS = (COMMITTED, ABORTED, OPEN, "marker")
_PRODUCER = [*PARTITION, "producer_id"]


@dataclass(frozen=True)
class Beliefs:
    """All that the stretches tell, planned.

    ``side``: the evidence of side files, with the control batches as its entries. ``stretches``: of what could be read.
    ``damaged``: REPLICA and ``problem`` of every file that cannot be read to its end. ``in_doubt``: the stretches of
    data with what is believed of them and ``misjudged``. ``spans``: `.txnindex` entries with a marker inside.
    ``summary``: a row for each replica. ``overtaken``, ``opened``, ``replicas``: as in `judged.Judged`.
    """

    side: Evidence
    stretches: DataFrame
    damaged: DataFrame
    in_doubt: DataFrame
    overtaken: DataFrame
    spans: DataFrame
    summary: DataFrame
    replicas: DataFrame
    opened: DataFrame

    @classmethod
    def of(cls, side: Evidence, ends: DataFrame, stretches: DataFrame) -> Beliefs:
        """Plan them. ``ends``: the replicas with log ends and bounds."""
        problems = stretches.where("problem IS NOT NULL").select(*REPLICA, "problem")
        damaged = problems.unionByName(side.damaged)
        sound = stretches.where("problem IS NULL")
        side = with_served_aborts(replace(side, entries=as_entries(sound.where("control"))))
        told = decided(sound)
        overtaken = overtaken_transactions(sound, told).localCheckpoint(eager=False)
        markers = checkpointed(markers_seen(side))
        spans = checkpointed(_spans(side, markers))
        in_doubt = _in_doubt(told, markers, overtaken, spans).localCheckpoint(eager=False)
        summary = checkpointed(_summary(sound, in_doubt))
        opened = open_transactions(in_doubt)
        replicas = with_whole_beyond(colocated(ends), summary.select(*REPLICA, "held_beyond")).join(
            summary.groupBy(*PARTITION).agg(f.max("transactional").alias("has_transactions")),
            PARTITION,
            "left",
        )
        replicas = checkpointed(with_stable_ends(replicas, opened))
        return cls(side, sound, damaged, in_doubt, overtaken, spans, summary, replicas, opened)

    @property
    def tails(self) -> DataFrame:
        """Stale tails that the batches tell of: a stretch may go on into one."""
        return unreplicated_tails(self.stretches.withColumn("last_offset", f.col("end_offset")), self.side.epochs)

    @property
    def ended_elsewhere(self) -> DataFrame:
        """REPLICA, ``from``, ``to``: the first batches of transactions that not all replicas hold open from there."""
        replicas = self.replicas.select(
            *REPLICA, "bound", f.count("*").over(Window.partitionBy(*PARTITION)).alias("replicas")
        )
        return (
            colocated(self.opened.join(colocated(replicas), REPLICA))
            .withColumn("holders", f.count("*").over(Window.partitionBy(*_PRODUCER, "first_offset")))
            .where("holders < replicas AND first_offset < bound")
            .join(colocated(self.damaged.select(*PARTITION).distinct()), PARTITION, "left_anti")
            .select(*REPLICA, f.col("first_offset").alias("from"), f.col("first_last_offset").alias("to"))
        )

    @property
    def to_show(self) -> DataFrame:
        """The stretches that have to be seen as batches: open ones, overtaken ones and what overtook them."""
        places = [
            self.overtaken.select(*REPLICA, f.col(name).alias("base_offset")) for name in ("offset", "overtaken_at")
        ]
        shown = colocated(places[0].unionByName(places[1]).distinct().withColumn("shown", f.lit(True)))
        is_shown = (f.col("belief") == OPEN) | f.col("shown")
        return self.in_doubt.join(shown, [*REPLICA, "base_offset"], "left").where(is_shown).drop("shown")

    def small_tables(self) -> dict[str, DataFrame]:
        """Return what is looked at before any record is."""
        return {
            "summary": self.summary,
            "spans": self.spans,
            "tails": self.tails,
            "replicas": self.replicas,
            "doubts": side_files.compare(self.side, self.replicas, self.opened, self.in_doubt),
            "unsure": txnindex_disagreement.compare(self.side.aborts, self.side.epochs, self.replicas),
            "damaged": self.damaged,
        }


def differing_places(summary: Sequence[dict[str, Any]]) -> set[Place]:
    """Return the places whose replicas do not hold the same batches with the same beliefs, or have any in doubt."""
    seen: dict[Place, set[tuple[Any, ...]]] = {}
    for row in summary:
        seen.setdefault(place_of(row), set()).add(tuple(row[belief] for belief in _DIGESTS))
    return {place for place, digests in seen.items() if len(digests) > 1} | {
        place_of(row) for row in summary if row["misjudged"]
    }


def as_entries(stretches: DataFrame) -> DataFrame:
    """Return batches that have no records to show as `ENTRIES`."""
    told = stretches.withColumns({"snapshot": f.lit(AFTER_REJOIN), "source": f.lit(DISK), "judged": f.lit(True)})
    columns = [
        (f.col(field.name) if field.name in told.columns else f.lit(None)).cast(field.dataType).alias(field.name)
        for field in ENTRIES
    ]
    return told.select(*columns)


def _with_first_mark(places: DataFrame, markers: DataFrame) -> DataFrame:
    """Add ``first_mark`` to places (``at``): where any replica first shows a marker of the producer after it."""
    marks = markers.select(*_PRODUCER, f.col("marker_offset").alias("at"), f.lit(True).alias("mark"))
    first = f.last(f.when(f.col("mark"), f.col("at")), ignorenulls=True).over(from_here_on(_PRODUCER, "at"))
    return (
        places.unionByName(marks, allowMissingColumns=True)
        .withColumn("first_mark", first)
        .where("mark IS NULL")
        .drop("mark", "at")
    )


def _spans(side: Evidence, markers: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``span_from``, ``span_to`` of each ``.txnindex`` entry that has a marker inside."""
    spans = side.aborts.where("first_offset IS NOT NULL").select(
        *REPLICA, "producer_id", f.col("first_offset").alias("span_from"), f.col("last_offset").alias("span_to")
    )
    marked = _with_first_mark(spans.withColumn("at", f.col("span_from")), markers)
    return marked.where("first_mark < span_to").drop("first_mark")


def _in_doubt(told: DataFrame, markers: DataFrame, overtaken: DataFrame, spans: DataFrame) -> DataFrame:
    """Add ``misjudged`` to the stretches: whether another marker may have been meant for a transactional one.

    It is so where the marker that decided here is not the first one that any replica shows, where this log alone shows
    that one was missed, and where a ``.txnindex`` tells of a transaction that another marker had ended before.
    """
    touched = spans.select(*_PRODUCER, "span_from", "span_to")
    in_spans = (
        colocated(told.where("transactional").join(touched, _PRODUCER))
        .where("base_offset <= span_to AND end_offset >= span_from")
        .select(*REPLICA, "producer_id", "base_offset", f.lit(True).alias("in_span"))
        .distinct()
    )
    # -1: of no marker; nulls do not join.
    decision = f.coalesce("decided_by", f.lit(-1)).alias("decision")
    passed = overtaken.select(*REPLICA, "producer_id", decision, f.lit(True).alias("passed")).distinct()
    return (
        _with_first_mark(told.withColumn("at", f.col("base_offset")), markers)
        .join(colocated(in_spans), [*REPLICA, "producer_id", "base_offset"], "left")
        .withColumn("decision", decision)
        .join(colocated(passed), [*REPLICA, "producer_id", "decision"], "left")
        .withColumn(
            "misjudged",
            f.col("transactional")
            & (
                ~f.col("decided_by").eqNullSafe(f.col("first_mark"))
                | f.col("in_span").isNotNull()
                | f.col("passed").isNotNull()
            ),
        )
        .drop("first_mark", "in_span", "passed", "decision")
    )


def _summary(sound: DataFrame, in_doubt: DataFrame) -> DataFrame:
    """Return REPLICA, digests of what is compared by belief, ``held_beyond``, ``misjudged``, ``open_stretches``."""
    columns = [*REPLICA, "region", "digest", "records", "transactional", "belief", "misjudged"]
    markers = sound.where("control").withColumn("belief", f.lit("marker")).withColumn("misjudged", f.lit(False))
    compared = f.col("region") == COMPARED
    digests = [
        f.bit_xor(f.when((f.col("belief") == belief) & compared, f.col("digest"))).alias(belief) for belief in _DIGESTS
    ]
    return (
        in_doubt.select(*columns)
        .unionByName(markers.select(*columns))
        .groupBy(*REPLICA)
        .agg(
            *digests,
            f.sum(f.when(f.col("region") == BEYOND, f.col("records")).otherwise(0)).alias("held_beyond"),
            f.count(f.when(f.col("misjudged"), 1)).alias("misjudged"),
            f.count(f.when(f.col("belief") == OPEN, 1)).alias("open_stretches"),
            f.max("transactional").alias("transactional"),
        )
    )
