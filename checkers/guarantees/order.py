"""order: records are stored in the order in which they were written, and are read in that order.

Verifies:

* the records that a read_committed consumer was delivered from a replica: their offsets rise;
* the ops of clients: a record that was acknowledged before another one was invoked has a lower offset. With `offsets`,
  which compares each record's offset with the acknowledged one, this is the order on every replica.

Does not verify, as it is verified already: the order inside a log as it is stored or served. The reader
(`harness.broker_files.segments.batches`) rejects a batch or record whose offset does not rise as a damaged folder: a
log out of order and a damaged copy look the same. Nor the segments of one folder against each other: a broker may have
been replacing them while the folder was copied. Records that were produced at the same time may be in either order.

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

NAME = "order"


def check(observed: ObservedRemovals) -> DataFrame:
    """Return `checkers.finding.results`; the offset is that of the record that is out of order."""
    rows = _delivered(observed).unionByName(_written(observed))
    return results(
        colocated(rows),
        NAME,
        violation="before IS NOT NULL",
        explanation=f.when(
            f.col("broker").isNull(),
            sentence("the record at offset {offset} was produced after offset {before} had been acknowledged"),
        ).otherwise(sentence("a consumer received offset {offset} after offset {before}")),
        witness={"came_after": f.col("before")},
    )


def _delivered(observed: ObservedRemovals) -> DataFrame:
    """Return REPLICA, offset, ``before``: the offset delivered just before; null where this one is higher."""
    # Only completed polls have records.
    history = observed.judged.evidence.history
    in_turn = history.select(*REPLICA, "op", f.posexplode("records.offset").alias("nth", "offset"))
    before = f.lag("offset").over(Window.partitionBy("op", *REPLICA).orderBy("nth"))
    return in_turn.withColumn("before", before).select(
        *REPLICA, "offset", f.when(f.col("before") >= f.col("offset"), f.col("before")).alias("before")
    )


def _written(observed: ObservedRemovals) -> DataFrame:
    """Return the same from acknowledgements: ``before`` is the first acknowledged record at a higher offset."""
    higher = Window.partitionBy(*PARTITION).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)
    first = f.min(f.struct("acked_at", "offset")).over(higher)
    return observed.acks.withColumn("first", first).select(
        *PARTITION,
        f.lit(None).cast("int").alias("broker"),
        "offset",
        f.when(f.col("first.acked_at") < f.col("invoked_at"), f.col("first.offset")).alias("before"),
    )
