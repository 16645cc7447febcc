"""Observed removals from replicas during cleaning, and an upper bound of the age of each removed record.

A removal is judged only where nothing but compaction can have caused it: the offset was below this replica's high
watermark before the removal (so it was not truncated, except in an unclean election), and after the removal the log
still started at or before the offset and ended after it.

The age of an offset is at most the time since the latest invocation of an acknowledged produce at or below that offset.
These times are by the clock of the harness's host, and brokers use their own clocks. A constant lead of a broker's
clock does not change the retention of tombstones and markers, which begins and ends on that clock, but a jump does. For
``min.compaction.lag.ms``, which is compared with clients' times, any lead matters. Where a run sets clocks forward, no
guarantee is judged by times (`checkers.evidence.parse.retentions_ms`).

Two guarantees are about these ages:

**tombstones**: a tombstone can be read for at least ``delete.retention.ms`` after it was written. Verifies the age of
every tombstone that the observer saw removed from a replica, against the topic's ``delete.retention.ms``. A reader that
reads the log from its start within that time receives the tombstone. The retention begins with the first cleaning,
after the write, so that a correct replica never removes a tombstone earlier. A violation is reported only where it is
proven (see above): the tombstone was committed, and this replica cannot have had a later record of its key,
because of which compaction removes a tombstone at once. So every offset from the tombstone to the log end at that time
must be known. Does not verify: tombstones of clients outside the run; that a tombstone is ever removed, which nothing
guarantees; tombstones that a replica never had, as it copied a cleaned log (see tombstone-divergence).

**min-compaction-lag**: no record younger than ``min.compaction.lag.ms`` is compacted. Verifies the age of every entry
(value, tombstone, marker, emptied batch) that the observer saw removed. Does not verify: entries whose time of writing
is unknown; a batch that is emptied too early, until the rest of the batch is removed. The default, 0, guarantees
nothing.

Does not verify: removals between two observations, or from a broker that was down.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 1 and 4, ``delete.retention.ms`` and
``min.compaction.lag.ms``; `Cleaner.shouldRetainRecord` and KIP-534 for the clock of tombstones;
`LogCleanerManager.cleanableOffsets`: nothing is cleaned from the first segment with a younger record on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, checkpointed, colocated
from checkers.finding import results, sentence
from checkers.replay.judged import Judged
from checkers.replay.truth import txn_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ObservedRemovals:
    """The input of the guarantees; only for runs, which have a history of clients.

    ``acks``: PARTITION, offset, key, tombstone, txn (as in record headers), ``invoked_ms``, ``invoked_at``,
    ``acked_at`` (lines of the history) of each acknowledged record.
    ``sightings``: REPLICA, offset, kind, producer_id, ``is_gone``, time_ms, log_start, log_end: the appearances and
    removals that the observer saw, at offsets below the replica's high watermark.
    ``removals``: the removals from inside the log, with the facts about the offset: key, tombstone, truth,
    ``last_of_key`` (the last offset of the key that is not known to be aborted), ``goes_on`` (see
    `truth.written_records`), ``known_to`` (the end of the known offsets from this one on), ``age_ms`` (an upper bound),
    ``delete_retention_ms`` and ``min_compaction_lag_ms``. Removals of unknown offsets are left out.
    """

    judged: Judged
    acks: DataFrame
    sightings: DataFrame
    removals: DataFrame


def observed_removals(judged: Judged) -> ObservedRemovals:
    """Derive the observed removals from the evidence of a run."""
    acks = checkpointed(
        judged.evidence.history.groupBy("op", *PARTITION)
        .agg(
            *(f.first(name, ignorenulls=True).alias(name) for name in ("offset", "key", "tombstone")),
            f.first(txn_header(), ignorenulls=True).alias("txn"),
            f.min("time_ms").alias("invoked_ms"),
            f.min("index").alias("invoked_at"),
            f.max("index").alias("acked_at"),
        )
        # Only the acknowledgement of a record has an offset.
        .where("offset IS NOT NULL")
        .drop("op")
    )
    sightings = checkpointed(_sightings(judged))
    return ObservedRemovals(judged, acks, sightings, checkpointed(_removals(judged, acks, sightings)))


def _sightings(judged: Judged) -> DataFrame:
    in_time = Window.partitionBy(*REPLICA).orderBy("time_ms")
    before = f.max("high_watermark").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    observations = judged.evidence.observations.withColumn("replicated_before", before)
    columns = [*REPLICA, "time_ms", "log_start", "log_end", "high_watermark", "replicated_before"]
    appeared, removed = (
        observations.select(*columns, f.explode(name).alias("seen"), f.lit(name == "removed").alias("is_gone"))
        for name in ("appeared", "removed")
    )
    return (
        colocated(appeared.unionByName(removed))
        .selectExpr(
            *columns, "is_gone", "seen.offset", "seen.kind", "if(is_gone, NULL, seen.producer_id) AS producer_id"
        )
        .where("offset < if(is_gone, replicated_before, high_watermark)")
        .drop("high_watermark", "replicated_before")
    )


def _removals(judged: Judged, acks: DataFrame, sightings: DataFrame) -> DataFrame:
    gone = sightings.where("is_gone AND log_start <= offset AND offset < log_end").select(
        *REPLICA, "offset", "kind", "time_ms", "log_end"
    )
    return (
        colocated(gone.join(colocated(_written(judged, acks)), ["offset", *PARTITION]))
        .join(judged.evidence.settings.drop("problem"), "run")
        .withColumn("age_ms", f.col("time_ms") - f.col("since_ms"))
        .where("age_ms IS NOT NULL")
    )


def _written(judged: Judged, acks: DataFrame) -> DataFrame:
    """Return the facts about every known offset: records from clients or logs, markers from any log or the observer."""
    begun = acks.groupBy("offset", *PARTITION).agg(f.max("invoked_ms").alias("invoked_ms"))
    records = judged.written.select(*PARTITION, "offset", "key", "tombstone", "truth", "goes_on")
    markers = judged.markers.selectExpr(*PARTITION, "marker_offset AS offset").distinct()
    upwards = Window.partitionBy(*PARTITION).orderBy("offset")
    contiguous, of_key = (Window.partitionBy(name, *PARTITION) for name in ("gap_number", "key"))
    not_aborted = f.expr("if(truth <=> 'aborted', NULL, offset)")
    return (
        colocated(records.unionByName(markers, allowMissingColumns=True))
        .join(colocated(begun), ["offset", *PARTITION], "left")
        .withColumn("since_ms", f.max("invoked_ms").over(upwards))
        .withColumn("gap_number", f.col("offset") - f.dense_rank().over(upwards))
        .withColumn("known_to", f.max("offset").over(contiguous) + 1)
        .withColumn("last_of_key", f.max(not_aborted).over(of_key))
        .drop("invoked_ms", "gap_number")
    )


def check_tombstones(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    rows = observed.removals.where(
        "tombstone AND last_of_key = offset AND NOT goes_on AND log_end <= known_to AND delete_retention_ms IS NOT NULL"
        " AND truth = 'committed'"
    )
    return results(
        rows,
        guarantee,
        violation="age_ms < delete_retention_ms",
        explanation=sentence(
            "the delete of key {key!r} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "delete.retention.ms is {delete_retention_ms}"
        ),
        witness="age_ms, delete_retention_ms, time_ms",
    )


def check_compaction_lag(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`."""
    return results(
        observed.removals.where("min_compaction_lag_ms > 0"),
        guarantee,
        violation="age_ms < min_compaction_lag_ms",
        explanation=sentence(
            "the {kind} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "min.compaction.lag.ms is {min_compaction_lag_ms}"
        ),
        witness="age_ms, min_compaction_lag_ms, time_ms",
    )
