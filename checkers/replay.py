"""What a broker believes: which transaction outcome its own log gives to each batch.

Rules (`ProducerStateManager`, `ProducerAppendInfo`, Kafka 3.9 - 4.4): a transactional data batch belongs to
the transaction that the next control marker of its producer ends, *in this broker's log*, whatever marker
was meant for it. A transactional data batch that compaction has emptied opens a transaction all the same;
an emptied control batch closes nothing. Without a following marker the transaction is open here.

Works on batches, not on records: a batch belongs to one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.window import WindowSpec

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


def outcome_of(marker: str) -> f.Column:  # type: ignore[name-defined]
    """Column: the outcome that a marker's type stands for; null for other control records."""
    return f.when(f.col(marker) == "commit", COMMITTED).when(f.col(marker) == "abort", ABORTED)


def from_here_on(group: list[str], offset: str) -> WindowSpec:
    """Window: this row and those at later offsets of its group, the nearest last; it holds no group in memory."""
    later_first = Window.partitionBy(*group).orderBy(f.col(offset).desc())
    return later_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def replay(entries: DataFrame) -> DataFrame:
    """Return one row per data batch with ``belief`` and ``decided_by``.

    Takes ENTRIES of one snapshot and source. Adds ``belief`` (committed | aborted | open; plain data is
    committed) and ``decided_by`` (the marker's offset, null where there is none) to the batch columns.
    """
    after = from_here_on([*REPLICA, "producer_id"], "base_offset")
    decision = f.when(outcome_of("marker").isNotNull(), f.struct(outcome_of("marker"), f.col("last_offset")))
    return (
        entries.where("first_in_batch")
        .withColumn("decision", f.last(decision, ignorenulls=True).over(after))
        .where("NOT control")
        .withColumn(
            "belief",
            f.when(~f.col("transactional"), COMMITTED).otherwise(f.coalesce(f.col("decision.col1"), f.lit(OPEN))),
        )
        .withColumn("decided_by", f.when(f.col("transactional"), f.col("decision.last_offset")))
        .select(*REPLICA, "base_offset", "last_offset", "producer_id", "producer_epoch", "transactional",
                "belief", "decided_by")
    )  # fmt: skip


def believed_records(entries: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return every record with its batch's ``belief`` and ``decided_by``."""
    records = entries.where(f.col("offset").isNotNull()).select(
        *REPLICA, "base_offset", "offset", "key", "tombstone", "txn", "producer_id", "transactional"
    )
    judged = beliefs.select(*REPLICA, "base_offset", "belief", "decided_by")
    return records.join(judged, [*REPLICA, "base_offset"])


def open_transactions(beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``first_offset``, ``first_last_offset`` of what each log leaves open.

    The first batch's base offset and last offset: the last stable offset stays at the former.
    """
    return (
        beliefs.where(f.col("belief") == OPEN)
        .groupBy(*REPLICA, "producer_id")
        .agg(
            f.min("base_offset").alias("first_offset"),
            f.min_by("last_offset", "base_offset").alias("first_last_offset"),
        )
    )
