"""Guarantees about records that readers receive: `last-value`, `order` and `offsets`.

Source: Kafka's documentation, "What guarantees does log compaction provide?": 4 (the final state of all records), 2
(messages are never re-ordered), 3 (the offset never changes).

**last-value**: a reader of any replica ends up with each key's last committed record. Verifies, for every key whose
last record below the bound is known to be committed, that each replica whose log starts at or before that record still
gives that state: the record itself if it is a value, and no older value if it is a tombstone (which may have been
removed). A replica gives the records that it believes committed: no reader receives a record that is hidden or in an
open transaction. Does not verify: a key whose last record is in a transaction whose end was not acknowledged to its
client; keys with a later record at or beyond the bound; records that were superseded, whose loss is legal.

**order**: records are stored in the order in which they were written, and are read in that order. Verifies that the
offsets that a replica delivered to a read_committed consumer rise, and that a record that was acknowledged before the
produce of another record was invoked has a lower offset; by *offsets* on every replica. Does not verify: the order
inside a stored or served log (`segments.batches` rejects a log whose offsets do not rise as damaged); the segments of a
folder against each other, as a broker may have been replacing them during the copy; records produced at the same time.

**offsets**: an offset never changes its content, on any replica, in any snapshot. Verifies all facts about one offset,
from the client that wrote there, from every replica's stored and served log at both snapshots, and from the observer.
All must agree on a value, a tombstone, a COMMIT or an ABORT, on the key and the transaction header of a record, and on
the producer of a marker (`ControlRecordType`: nothing rewrites the type of a marker, compaction may only empty its
batch). A replica's entry counts only below the replica's high watermark at that time: above it, a change of leader may
legally replace a record. Does not verify: values and timestamps of records; entries above a high watermark that lags,
as in the checkpoint of a broker that is down; records written after all snapshots.
"""

from functools import partial, reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import results, sentence
from checkers.guarantees.removals import ObservedRemovals
from checkers.replay.truth import client_outcomes
from harness.broker_files.segments.records import MARKERS
from harness.run_folder.store import BEFORE_RETURN

FACTS = ("kind", "key", "txn", "producer_id")
CLIENT, OBSERVER, BEFORE, AFTER = range(4)
"""Sources of a fact, in chronological order."""
_RECORD_KIND = "if(tombstone, 'tombstone', 'value')"


def check_last_value(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`; the offset is the last committed record's."""
    judged = observed.judged
    unacknowledged = client_outcomes(judged.evidence.history).where("client_outcome IS NULL").select("run", "txn")
    undecided = judged.written.join(unacknowledged, ["run", "txn"], "left_semi")
    undecided = undecided.selectExpr(*PARTITION, "offset AS true_offset")
    wrong = judged.differing_keys.selectExpr(*REPLICA, "key", "here_offset", "true AS wrong")
    rows = (
        judged.expected.join(colocated(undecided), ["true_offset", *PARTITION], "left_anti")
        .join(wrong, ["key", *REPLICA], "left")
        .withColumn("offset", f.col("true_offset"))
    )
    return results(
        rows,
        guarantee,
        violation="wrong",
        explanation=sentence(
            "key {key!r}: its last committed record is the {kind} at offset {true_offset}, and this replica serves "
            "{here}",
            kind="if(true_tombstone, 'delete', 'value')",
            here="coalesce(concat('the record at offset ', here_offset), 'nothing')",
        ),
        witness="true_offset AS last_committed_at, here_offset AS last_here_at",
    )


def check_order(observed: ObservedRemovals, guarantee: str) -> DataFrame:
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
    ordered = in_turn.withColumn("before", before)
    return ordered.selectExpr(*REPLICA, "offset", "if(before >= offset, before, NULL) AS before")


def _written(observed: ObservedRemovals) -> DataFrame:
    """Return REPLICA, offset, ``before``: a higher offset that was acknowledged before the produce, or null."""
    higher = Window.partitionBy(*PARTITION).orderBy(f.desc("offset")).rowsBetween(Window.unboundedPreceding, -1)
    earliest = f.min(f.struct("acked_at", "offset")).over(higher)
    before = "if(earliest.acked_at < invoked_at, earliest.offset, NULL) AS before"
    return observed.acks.withColumn("earliest", earliest).selectExpr(
        *PARTITION, "CAST(NULL AS int) AS broker", "offset", before
    )


def check_offsets(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    from_clients = observed.acks.selectExpr(
        *PARTITION, f"{CLIENT} AS fact_source", "invoked_ms AS time_ms", "offset", f"{_RECORD_KIND} AS kind", "key",
        "txn",
    )  # fmt: skip
    from_observer = observed.sightings.where("kind != 'empty'").select(
        *REPLICA,
        f.lit(OBSERVER).alias("fact_source"),
        *("time_ms", "offset", "kind"),
        f.when(f.col("kind").isin(*MARKERS), f.col("producer_id")).alias("producer_id"),
    )
    sources = (from_clients, _from_logs(observed), from_observer)
    facts = colocated(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), sources))
    order = ("fact_source", "time_ms", f.asc_nulls_first("broker"), *FACTS)
    in_time = Window.partitionBy("offset", *PARTITION).orderBy(*order)
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


def _from_logs(observed: ObservedRemovals) -> DataFrame:
    evidence = observed.judged.evidence
    replicated = evidence.states.select(*REPLICA, "snapshot", "high_watermark")
    return (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .selectExpr(
            *REPLICA,
            *("snapshot", "key", "txn"),
            f"if(snapshot = '{BEFORE_RETURN}', {BEFORE}, {AFTER}) AS fact_source",
            "coalesce(offset, last_offset) AS offset",
            f"coalesce(marker, {_RECORD_KIND}) AS kind",
            # The producer of data batches is not compared: Redpanda's compaction rewrites more of them than Kafka's.
            "if(marker IS NOT NULL, producer_id, NULL) AS producer_id",
        )
        .join(colocated(replicated), [*REPLICA, "snapshot"])
        .where("offset < high_watermark")
        .drop("snapshot", "high_watermark")
    )
