"""order: records are where they were written, one after the other, and are read in that order.

Verifies:

* what a read_committed consumer was delivered of a replica: its offsets rise;
* what clients know: a record that was acknowledged before another one was begun lies at a lower offset. With
  `offsets`, which finds each of them where the client was told, this is the order in which any replica has them.

Does not verify, as there is nothing left to verify: the order inside a log as it is stored or served. The reader
(`harness.brokers.segments.batches`) refuses a batch or record whose offset does not rise, as a damaged folder: a log
that is out of order is not told from a copy that is. Nor the segments of one folder against each other: a broker may
have been replacing them while it was copied. Records that were produced at the same time may lie either way.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 2 (messages are never re-ordered).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.guarantees.told import told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "order"


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`; the offset is that of the record that comes too late."""
    rows = _delivered(watched).unionByName(_written(watched))
    return told(
        colocated(rows),
        NAME,
        broken="before IS NOT NULL",
        explanation=f.when(
            f.col("broker").isNull(),
            f.format_string(
                "offset %d was begun when offset %d had been acknowledged, which lies after it", "offset", "before"
            ),
        ).otherwise(f.format_string("a consumer was delivered offset %d after offset %d", "offset", "before")),
        witness={"came_after": f.col("before")},
    )


def _delivered(watched: Watched) -> DataFrame:
    """Return REPLICA, offset, ``before``: the offset delivered just before one that is not higher."""
    # Only polls that were answered have records.
    history = watched.judged.evidence.history
    in_turn = history.select(*REPLICA, "op", f.posexplode("records.offset").alias("nth", "offset"))
    before = f.lag("offset").over(Window.partitionBy(*REPLICA, "op").orderBy("nth"))
    return in_turn.withColumn("before", before).select(
        *REPLICA, "offset", f.when(f.col("before") >= f.col("offset"), f.col("before")).alias("before")
    )


def _written(watched: Watched) -> DataFrame:
    """Return the same of what clients know: ``before`` is the first acknowledged of the records at higher offsets."""
    higher = Window.partitionBy(*PARTITION).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)
    first = f.min(f.struct("acked_at", "offset")).over(higher)
    return watched.acks.withColumn("first", first).select(
        *PARTITION,
        f.lit(None).cast("int").alias("broker"),
        "offset",
        f.when(f.col("first.acked_at") < f.col("invoked_at"), f.col("first.offset")).alias("before"),
    )
