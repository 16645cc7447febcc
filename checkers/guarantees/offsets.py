"""offsets: what lies at an offset stays what it is, on every replica, in every snapshot, for good.

Verifies: all that is told of one offset, by the client that wrote there, by every replica's stored and served log at
both snapshots, and by the observer whenever something appeared or went: it is a value, a tombstone, a COMMIT or an
ABORT, and always the same of these; a record has one key and one transaction header, a marker one producer. Of a
replica only what it knew to be below its own high watermark then: above it, a record may be replaced after a change
of leader, and legally. Nothing at an offset (a gap, an emptied batch) contradicts nothing.

Does not verify: values and timestamps of records, which evidence does not hold; what lies above a high watermark that
was not yet known, as in the files of a broker that is down and whose checkpoint lags; that the offset is not used by
another record *later* than all snapshots.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 3 (the offset never changes). That a
marker keeps its type: `ControlRecordType`, which nothing rewrites; compaction may only empty its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import printable
from checkers.guarantees.told import told
from harness.run_folder.store import BEFORE_RETURN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "offsets"
FACTS = ("kind", "key", "txn", "producer_id")
CLIENT, OBSERVER, BEFORE, AFTER = range(4)
"""Who tells, in the order of time."""


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`."""
    words = colocated(_of_clients(watched).unionByName(_of_logs(watched)).unionByName(_of_observer(watched)))
    in_turn = Window.partitionBy(*PARTITION, "offset").orderBy("teller", "time_ms", f.asc_nulls_first("broker"), *FACTS)
    all_of_it = in_turn.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    first = {name: f.first(name, ignorenulls=True).over(all_of_it).alias(f"first_{name}") for name in FACTS}
    rows = words.select("*", *first.values()).where("broker IS NOT NULL")
    differs = [f.coalesce(f.col(name) != f.col(f"first_{name}"), f.lit(False)) for name in FACTS]
    return told(
        rows,
        NAME,
        broken=differs[0] | differs[1] | differs[2] | differs[3],
        explanation=f.format_string(
            "offset %d is a %s (key %s, transaction %s) here, and was a %s (key %s, transaction %s)",
            "offset", "kind", printable("key"), printable("txn", none="none"), "first_kind", printable("first_key"),
            printable("first_txn", none="none"),
        ),
        witness={name: f.col(name).cast("string") for one in FACTS for name in (one, f"first_{one}")},
    )  # fmt: skip


def _record_kind() -> f.Column:  # type: ignore[name-defined]
    return f.when(f.col("tombstone"), "tombstone").otherwise("value")


def _of_clients(watched: Watched) -> DataFrame:
    return watched.acks.select(
        *PARTITION,
        f.lit(None).cast("int").alias("broker"),
        f.lit(CLIENT).alias("teller"),
        f.col("invoked_ms").alias("time_ms"),
        "offset",
        _record_kind().alias("kind"),
        "key",
        "txn",
        f.lit(None).cast("long").alias("producer_id"),
    )


def _of_logs(watched: Watched) -> DataFrame:
    evidence = watched.judged.evidence
    replicated = evidence.states.select(*REPLICA, "snapshot", "high_watermark")
    return (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .select(
            *REPLICA,
            "snapshot",
            f.when(f.col("snapshot") == BEFORE_RETURN, BEFORE).otherwise(AFTER).alias("teller"),
            f.lit(None).cast("long").alias("time_ms"),
            f.coalesce("offset", "last_offset").alias("offset"),
            f.coalesce("marker", _record_kind()).alias("kind"),
            "key",
            "txn",
            # A record's may be told by its header; Redpanda's compaction rewrites more of a data batch than Kafka's.
            f.when(f.col("marker").isNotNull(), f.col("producer_id")).alias("producer_id"),
        )
        .join(colocated(replicated), [*REPLICA, "snapshot"])
        .where("offset < high_watermark")
        .drop("snapshot", "high_watermark")
    )


def _of_observer(watched: Watched) -> DataFrame:
    nothing = {name: f.lit(None).cast(kind) for name, kind in (("key", "binary"), ("txn", "string"))}
    return watched.sightings.where("kind != 'empty'").select(
        *REPLICA,
        f.lit(OBSERVER).alias("teller"),
        "time_ms",
        "offset",
        "kind",
        *(column.alias(name) for name, column in nothing.items()),
        f.when(f.col("kind").isin("commit", "abort"), f.col("producer_id")).alias("producer_id"),
    )
