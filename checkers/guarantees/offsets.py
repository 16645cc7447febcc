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
from checkers.finding import results, sentence
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import BEFORE_RETURN

if TYPE_CHECKING:
    from checkers.guarantees.removals import ObservedRemovals

FACTS = ("kind", "key", "txn", "producer_id")
CLIENT, OBSERVER, BEFORE, AFTER = range(4)
"""Sources of a fact, in chronological order."""
_RECORD_KIND = "if(tombstone, 'tombstone', 'value')"


def check(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    sources = (_from_clients(observed), _from_logs(observed), _from_observer(observed))
    facts = colocated(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), sources))
    in_time = Window.partitionBy("offset", *PARTITION).orderBy(
        "fact_source", "time_ms", f.asc_nulls_first("broker"), *FACTS
    )
    every_fact = in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    first = [f.first(name, ignorenulls=True).over(every_fact).alias(f"first_{name}") for name in FACTS]
    return results(
        facts.select("*", *first).where("broker IS NOT NULL"),
        guarantee,
        violation=" OR ".join(f"coalesce({name} != first_{name}, false)" for name in FACTS),
        explanation=sentence(
            "offset {offset} is a {kind} (key {key!r}, transaction {txn!r:none}) here, and was a {first_kind} (key "
            "{first_key!r}, transaction {first_txn!r:none})"
        ),
        witness=", ".join(f"CAST({name} AS string) AS {name}" for fact in FACTS for name in (fact, f"first_{fact}")),
    )


def _from_clients(observed: ObservedRemovals) -> DataFrame:
    return observed.acks.selectExpr(
        *PARTITION, f"{CLIENT} AS fact_source", "invoked_ms AS time_ms", "offset", f"{_RECORD_KIND} AS kind", "key",
        "txn",
    )  # fmt: skip


def _from_logs(observed: ObservedRemovals) -> DataFrame:
    evidence = observed.judged.evidence
    replicated = evidence.states.select(*REPLICA, "snapshot", "high_watermark")
    return (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .selectExpr(
            *REPLICA,
            "snapshot",
            f"if(snapshot = '{BEFORE_RETURN}', {BEFORE}, {AFTER}) AS fact_source",
            "coalesce(offset, last_offset) AS offset",
            f"coalesce(marker, {_RECORD_KIND}) AS kind",
            "key",
            "txn",
            # The producer of data batches is not compared: Redpanda's compaction rewrites more of them than Kafka's.
            "if(marker IS NOT NULL, producer_id, NULL) AS producer_id",
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
