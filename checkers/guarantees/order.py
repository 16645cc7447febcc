"""order: records are stored in the order in which they were written, and are read in that order.

Verifies:

* the offsets of the records that a replica delivered to a read_committed consumer rise;
* a record that was acknowledged before the produce of another record was invoked has a lower offset. As `offsets`
  compares each record's offset with its acknowledgement, this is the order on every replica.

Does not verify: the order inside a stored or served log (`harness.broker_files.segments.batches` rejects a log whose
offsets do not rise as damaged); the segments of one folder against each other, as a broker may have been replacing them
during the copy. Records that were produced at the same time may be in either order.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 2 (messages are never re-ordered).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import results, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.removals import ObservedRemovals


def check(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`; the offset is where the record that is out of order lies."""
    return results(
        colocated(_delivered(observed).unionByName(_written(observed))),
        guarantee,
        violation="before IS NOT NULL",
        explanation=f.when(
            f.col("broker").isNull(),
            sentence("the record at offset {offset} was produced after offset {before} had been acknowledged"),
        ).otherwise(sentence("a consumer received offset {offset} after offset {before}")),
        witness="before AS came_after",
    )


def _delivered(observed: ObservedRemovals) -> DataFrame:
    """Return REPLICA, offset, ``before``: the offset delivered just before, null where the order is right."""
    # Only completed polls have records.
    history = observed.judged.evidence.history
    in_turn = history.select(*REPLICA, "op", f.posexplode("records.offset").alias("nth", "offset"))
    before = f.lag("offset").over(Window.partitionBy("op", *REPLICA).orderBy("nth"))
    return in_turn.withColumn("before", before).selectExpr(
        *REPLICA, "offset", "if(before >= offset, before, NULL) AS before"
    )


def _written(observed: ObservedRemovals) -> DataFrame:
    """Return REPLICA, offset, ``before``: a higher offset that was acknowledged before the produce, or null."""
    higher = Window.partitionBy(*PARTITION).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)
    earliest = f.min(f.struct("acked_at", "offset")).over(higher)
    return observed.acks.withColumn("earliest", earliest).selectExpr(
        *PARTITION,
        "CAST(NULL AS int) AS broker",
        "offset",
        "if(earliest.acked_at < invoked_at, earliest.offset, NULL) AS before",
    )
