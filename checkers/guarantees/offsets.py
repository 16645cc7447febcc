"""offsets: an offset never changes its content, on any replica, in any snapshot.

Verifies: all facts about one offset, from the client that wrote there, from every replica's stored and served log at
both snapshots, and from the observer's appearances and removals. All must agree on a value, a tombstone, a COMMIT or an
ABORT, on the key and the transaction header of a record, and on the producer of a marker. A replica's entry counts only
below the replica's high watermark at that time: above it, a change of leader may legally replace a record. An empty
offset (a gap, an emptied batch) contradicts nothing.

Does not verify: values and timestamps of records, which evidence does not contain; entries above a high watermark that
lags, as in the checkpoint of a broker that is down; records written after all snapshots.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 3 (the offset never changes);
`ControlRecordType`: nothing rewrites the type of a marker, compaction may only empty its batch.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import printable, results, sentence
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import BEFORE_RETURN

if TYPE_CHECKING:
    from checkers.guarantees.removals import ObservedRemovals

NAME = "offsets"
FACTS = ("kind", "key", "txn", "producer_id")
CLIENT, OBSERVER, BEFORE, AFTER = range(4)
"""Sources of a fact, in chronological order."""


def check(observed: ObservedRemovals) -> DataFrame:
    """Return `checkers.finding.results`."""
    sources = (_from_clients(observed), _from_logs(observed), _from_observer(observed))
    facts = colocated(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), sources))
    in_time = Window.partitionBy("offset", *PARTITION).orderBy(
        "fact_source", "time_ms", f.asc_nulls_first("broker"), *FACTS
    )
    whole_offset = in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    first = {name: f.first(name, ignorenulls=True).over(whole_offset).alias(f"first_{name}") for name in FACTS}
    rows = facts.select("*", *first.values()).where("broker IS NOT NULL")
    differs = [f.coalesce(f.col(name) != f.col(f"first_{name}"), f.lit(False)) for name in FACTS]
    return results(
        rows,
        NAME,
        violation=differs[0] | differs[1] | differs[2] | differs[3],
        explanation=sentence(
            "offset {offset} is a {kind} (key {key}, transaction {txn}) here, and was a {first_kind} (key {first_key}, "
            "transaction {first_txn})",
            **{name: printable(name) for name in ("key", "first_key")},
            **{name: printable(name, none="none") for name in ("txn", "first_txn")},
        ),
        witness={name: f.col(name).cast("string") for fact in FACTS for name in (fact, f"first_{fact}")},
    )


def _record_kind() -> f.Column:  # type: ignore[name-defined]
    return f.when(f.col("tombstone"), "tombstone").otherwise("value")


def _from_clients(observed: ObservedRemovals) -> DataFrame:
    return observed.acks.select(
        *PARTITION,
        f.lit(CLIENT).alias("fact_source"),
        f.col("invoked_ms").alias("time_ms"),
        "offset",
        _record_kind().alias("kind"),
        "key",
        "txn",
    )


def _from_logs(observed: ObservedRemovals) -> DataFrame:
    evidence = observed.judged.evidence
    replicated = evidence.states.select(*REPLICA, "snapshot", "high_watermark")
    return (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .select(
            *REPLICA,
            "snapshot",
            f.when(f.col("snapshot") == BEFORE_RETURN, BEFORE).otherwise(AFTER).alias("fact_source"),
            f.coalesce("offset", "last_offset").alias("offset"),
            f.coalesce("marker", _record_kind()).alias("kind"),
            "key",
            "txn",
            # The producer of data batches is not compared: Redpanda's compaction rewrites more of them than Kafka's.
            f.when(f.col("marker").isNotNull(), f.col("producer_id")).alias("producer_id"),
        )
        .join(colocated(replicated), [*REPLICA, "snapshot"])
        .where("offset < high_watermark")
        .drop("snapshot", "high_watermark")
    )


def _from_observer(observed: ObservedRemovals) -> DataFrame:
    return observed.sightings.where("kind != 'empty'").select(
        *REPLICA,
        f.lit(OBSERVER).alias("fact_source"),
        "time_ms",
        "offset",
        "kind",
        f.when(f.col("kind").isin(*MARKERS), f.col("producer_id")).alias("producer_id"),
    )
