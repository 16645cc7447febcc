"""The beliefs of a broker: the transaction outcome that its own log gives to each batch.

Rules (`ProducerStateManager`, `ProducerAppendInfo`, Kafka 3.9 - 4.4): a transactional data batch belongs to
the transaction that the next marker of its producer ends, *in this broker's log*, even if another marker was written
for that transaction. A transactional data batch that compaction has emptied also opens a transaction; an emptied
control batch ends none. Without a following marker the transaction is open on this broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from harness.broker_files.segments.records import ABORT, COMMIT, MARKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.window import WindowSpec

PRODUCER = (*PARTITION, "producer_id")
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


def outcome_of(marker: str) -> f.Column:  # type: ignore[name-defined]
    """Return the outcome for a column with a marker's type; null for other control records."""
    return f.when(f.col(marker) == COMMIT, COMMITTED).when(f.col(marker) == ABORT, ABORTED)


def own_marker() -> f.Column:  # type: ignore[name-defined]
    """Return whether the deciding marker is certainly the transaction's own, as its producer epoch is the next one.

    From transactions v2 on, each end of a transaction increments the producer epoch. In v1 a marker has the epoch of
    the data, and so has the marker of the producer's next transaction (KIP-890).
    """
    return f.coalesce(f.col("decided_in_epoch") == f.col("producer_epoch") + 1, f.lit(False))


def from_here_on(group: list[str], offset: str) -> WindowSpec:
    """Return the window of this row and the rows at later offsets, nearest last; no group is buffered in memory."""
    later_first = Window.partitionBy(*group).orderBy(f.col(offset).desc())
    return later_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def with_first_marker(
    rows: DataFrame, markers: DataFrame, *, at: str, group: Sequence[str] = PRODUCER, is_big: bool = False
) -> DataFrame:
    """Add ``first_marker`` and ``marker_outcome``: offset and outcome of the group's first marker after offset ``at``.

    ``markers``: as in `judged.Judged`. ``is_big``: leave the rows of a run distributed.
    """
    marks = markers.select(*group, f.col("marker_offset").alias(at), f.struct("outcome", "marker_offset").alias("mark"))
    both = rows.unionByName(marks, allowMissingColumns=True)
    first = f.last("mark", ignorenulls=True).over(from_here_on([*group], at))
    return (
        (both if is_big else colocated(both))
        .withColumn("first", first)
        .where("mark IS NULL")
        .withColumns({"marker_outcome": f.col("first.outcome"), "first_marker": f.col("first.marker_offset")})
        .drop("mark", "first")
    )


_OF_MARKER = {
    "decided_by": "last_offset",
    "decided_in_epoch": "producer_epoch",
    "decided_in_leader_epoch": "leader_epoch",
}
"""Columns about the marker that decides a batch, and the marker's own columns."""
BELIEF = ("belief", *_OF_MARKER)


def with_beliefs(batches: DataFrame) -> DataFrame:
    """Return the data batches, or all their records, of one snapshot and source with `BELIEF`.

    Adds ``belief`` (committed | aborted | open; non-transactional data is committed) and offset, producer epoch and
    leader epoch of the deciding marker (null without a marker). Control batches are left out.
    """
    facts = f.struct(outcome_of("marker").alias("outcome"), *_OF_MARKER.values())
    decision = f.when(outcome_of("marker").isNotNull(), facts)
    after = from_here_on(["producer_id", *REPLICA], "base_offset")
    return (
        batches.withColumn("decision", f.last(decision, ignorenulls=True).over(after))
        .where("NOT control")
        .withColumns(
            {
                "belief": f.when(~f.col("transactional"), COMMITTED).otherwise(
                    f.coalesce("decision.outcome", f.lit(OPEN))
                ),
                **{
                    name: f.when(f.col("transactional"), f.col(f"decision.{of_marker}"))
                    for name, of_marker in _OF_MARKER.items()
                },
            }
        )
        .drop("decision")
    )


def overtaken_transactions(entries: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``offset``, ``last_offset``, belief, ``decided_by``, ``overtaken_at`` of each log.

    A row is a producer's first batch that is followed by data of a higher producer epoch before any marker of that
    producer: this replica has missed a marker in between. A producer gets a higher epoch only after its transaction
    coordinator has ended the open transaction (KIP-360, KIP-890), and compaction removes a marker only after the last
    batch of its transaction. A gap between epochs proves nothing, as transactions on other partitions also increment
    the epoch.
    """
    in_order = Window.partitionBy("producer_id", *REPLICA).orderBy("base_offset")
    # Markers have no epoch here, so that they neither overtake a batch nor are overtaken.
    markers = entries.where(f.col("marker").isin(*MARKERS)).select(*REPLICA, "base_offset", "producer_id")
    batches = beliefs.where("transactional").select(
        *REPLICA, "base_offset", "producer_id", "last_offset", "producer_epoch", "belief", "decided_by"
    )
    return (
        batches.unionByName(markers, allowMissingColumns=True)
        .withColumn("next_epoch", f.lead("producer_epoch").over(in_order))
        .withColumn("next_offset", f.lead("base_offset").over(in_order))
        .where("next_epoch > producer_epoch")
        .groupBy("producer_id", "belief", "decided_by", *REPLICA)
        .agg(
            f.min("base_offset").alias("offset"),
            f.min_by("last_offset", "base_offset").alias("last_offset"),
            f.min("next_offset").alias("overtaken_at"),
        )
    )


def open_transactions(beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``first_offset``, ``first_last_offset`` of the transactions open in each log.

    The offsets are the first and the last one of the transaction's first batch.
    """
    return (
        beliefs.where(f.col("belief") == OPEN)
        .groupBy("producer_id", *REPLICA)
        .agg(
            f.min("base_offset").alias("first_offset"),
            f.min_by("last_offset", "base_offset").alias("first_last_offset"),
        )
    )
