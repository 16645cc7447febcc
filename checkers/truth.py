"""What is right: the outcome of every transaction and the last committed record of every key.

A transaction's outcome is what the client knows. Where the client does not know it (``info``), it is what
the *earliest* marker of the producer says that was ever seen after the record on any replica, at any
snapshot: markers can vanish and never appear, so a replica whose log gives a later one has lost one. That is
not a vote. Where neither tells, the outcome is null and nothing is judged by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from checkers.evidence import PARTITION, REPLICA
from checkers.replay import ABORTED, COMMITTED, outcome_of
from harness.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.evidence import Evidence


def bounded_replicas(evidence: Evidence) -> DataFrame:
    """Return every replica after the rejoin with its log end and its partition's bound.

    The bound is the smaller of the highest high watermark that any replica knows and the shortest log end:
    a checkpoint may lag by seconds, so the smallest high watermark would say nothing.
    """
    ends = evidence.final.groupBy(*REPLICA).agg((f.max("last_offset") + 1).alias("log_end"))
    everywhere = Window.partitionBy(*PARTITION)
    return (
        evidence.states.where(f.col("snapshot") == AFTER_REJOIN)
        .join(ends, REPLICA, "left")
        .withColumn("log_end", f.coalesce("log_end", "log_start"))
        .withColumn(
            "bound",
            f.least(f.max("high_watermark").over(everywhere), f.min("log_end").over(everywhere)),
        )
    )


def markers_seen(evidence: Evidence) -> DataFrame:
    """Return every marker that any replica held, ever: in logs, in ``.txnindex``, or seen by the observer."""
    logs = evidence.entries.where(f.col("marker").isin("commit", "abort")).select(
        *PARTITION, "producer_id", f.col("last_offset").alias("marker_offset"), outcome_of("marker").alias("outcome")
    )
    indexes = evidence.aborts.select(
        *PARTITION, "producer_id", f.col("last_offset").alias("marker_offset"), f.lit(ABORTED).alias("outcome")
    )
    observed = (
        evidence.observations.select(*PARTITION, f.explode("appeared").alias("seen"))
        .where(f.col("seen.kind").isin("commit", "abort"))
        .select(
            *PARTITION,
            f.col("seen.producer_id").alias("producer_id"),
            f.col("seen.offset").alias("marker_offset"),
            outcome_of("seen.kind").alias("outcome"),
        )
    )
    return logs.unionAll(indexes).unionAll(observed).distinct()


def client_outcomes(history: DataFrame) -> DataFrame:
    """Return run, txn header, ``outcome`` of every transaction whose end the client saw acknowledged."""
    ended = history.where(f.col("f").isin("commit", "abort") & (f.col("type") == "ok"))
    return ended.select("run", _txn_header(), f.when(f.col("f") == "commit", COMMITTED).otherwise(ABORTED).alias("outcome"))


def known_records(evidence: Evidence, markers: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return every record that is known to have been written below the bound, with its truth.

    From the client's acknowledgements and from what any replica held below a high watermark of that time
    (beyond it a replica may hold what is truncated later). Where both tell of one offset, the client's word
    counts.
    """
    acked = evidence.history.where("f = 'produce' AND type = 'ok'").select(
        *PARTITION,
        "offset",
        f.lit(0).alias("rank"),
        f.encode("key", "utf-8").alias("key"),
        "tombstone",
        f.when(f.col("transactional_id").isNotNull(), _txn_header()).alias("txn"),
        f.col("transactional_id").isNotNull().alias("transactional"),
        f.lit(None).cast("long").alias("producer_id"),
    )
    replicated = evidence.states.groupBy(*PARTITION, "snapshot").agg(f.max("high_watermark").alias("replicated"))
    held = (
        evidence.entries.where(f.col("offset").isNotNull())
        .join(replicated, [*PARTITION, "snapshot"])
        .where("offset < replicated")
        .select(*PARTITION, "offset", f.lit(1).alias("rank"), "key", "tombstone", "txn", "transactional", "producer_id")
    )
    first = f.min_by
    bounds = replicas.select(*PARTITION, "bound").distinct()
    records = (
        acked.unionAll(held)
        .groupBy(*PARTITION, "offset")
        .agg(
            first("key", "rank").alias("key"),
            first("tombstone", "rank").alias("tombstone"),
            first("txn", "rank").alias("txn"),
            first("transactional", "rank").alias("transactional"),
            f.max("producer_id").alias("producer_id"),
        )
        .join(bounds, PARTITION)
        .where("offset < bound")
        .drop("bound")
    )
    told = client_outcomes(evidence.history).withColumnRenamed("outcome", "client_outcome")
    by_marker = _first_marker(records, markers)
    return (
        records.join(told, ["run", "txn"], "left")
        .join(by_marker, [*PARTITION, "offset"], "left")
        .withColumn(
            "truth",
            f.when(~f.col("transactional"), COMMITTED).otherwise(f.coalesce("client_outcome", "marker_outcome")),
        )
        .drop("client_outcome", "marker_outcome")
    )


def _first_marker(records: DataFrame, markers: DataFrame) -> DataFrame:
    """Return PARTITION, offset, ``marker_outcome``: by the earliest marker after each transactional record."""
    after = (
        Window.partitionBy(*PARTITION, "producer_id")
        .orderBy(f.col("at").desc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    data = records.where("transactional AND producer_id IS NOT NULL").select(
        *PARTITION, "producer_id", f.col("offset").alias("at"), f.lit(None).cast("string").alias("outcome")
    )
    marks = markers.select(*PARTITION, "producer_id", f.col("marker_offset").alias("at"), "outcome")
    return (
        data.withColumn("is_data", f.lit(True))
        .unionAll(marks.withColumn("is_data", f.lit(False)))
        .withColumn("marker_outcome", f.last("outcome", ignorenulls=True).over(after))
        .where("is_data")
        .select(*PARTITION, f.col("at").alias("offset"), "marker_outcome")
    )


def differing_keys(known: DataFrame, records: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return the keys whose final state on a replica is not the true one.

    REPLICA, key, true_offset, true_tombstone, here_offset, here_tombstone, here_truth. The true final state
    is the last record whose truth is committed; a key with a later record of unknown outcome is left out. A
    state is wrong when a deleted key has a value here, when the last value is not what is alive here, or
    when a key without any committed record has one. A log that starts after the true record is legal.
    """
    last = f.max(f.when(f.col("truth") == COMMITTED, f.struct("offset", "tombstone")))
    unsure = f.max(f.when(f.col("truth").isNull(), f.col("offset")))
    true_states = (
        known.groupBy(*PARTITION, "key")
        .agg(last.alias("true"), unsure.alias("unsure"))
        .where(f.col("unsure").isNull() | (f.col("unsure") < f.col("true.offset")))
        .select(
            *PARTITION, "key", f.col("true.offset").alias("true_offset"), f.col("true.tombstone").alias("true_tombstone")
        )
    )
    truths = known.select(*PARTITION, "offset", "truth")
    here = (
        records.where(f.col("belief") == COMMITTED)
        .groupBy(*REPLICA, "key")
        .agg(f.max(f.struct("offset", "tombstone")).alias("here"))
        .select(
            *REPLICA, "key", f.col("here.offset").alias("here_offset"), f.col("here.tombstone").alias("here_tombstone")
        )
        .join(
            truths.withColumnRenamed("offset", "here_offset").withColumnRenamed("truth", "here_truth"),
            [*PARTITION, "here_offset"],
            "left",
        )
    )
    deleted = f.col("true_offset").isNull() | f.col("true_tombstone")
    alive_here = f.col("here_offset").isNotNull() & ~f.col("here_tombstone")
    wrong = f.when(deleted, alive_here).otherwise(
        f.col("here_offset").isNull() | (f.col("here_offset") != f.col("true_offset"))
    )
    return (
        true_states.join(replicas.select(*REPLICA, "log_start"), PARTITION)
        .join(here, [*REPLICA, "key"], "left")
        .where(wrong & (f.col("true_offset").isNull() | (f.col("true_offset") >= f.col("log_start"))))
    )


def _txn_header() -> f.Column:  # type: ignore[name-defined]
    return f.concat_ws("/", "transactional_id", f.col("txn").cast("string")).alias("txn")
