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

from checkers.evidence import PARTITION, REPLICA, held, in_one
from checkers.replay import ABORTED, COMMITTED, from_here_on, outcome_of
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
    """Return every marker that any replica held, ever: in logs, in ``.txnindex``, or seen by the observer.

    What lies beyond every high watermark of its snapshot does not count: it may have been truncated. Of what
    the observer saw, all counts.
    """
    logs = evidence.entries.where(f.col("marker").isin("commit", "abort")).select(
        *PARTITION, "snapshot", "producer_id", f.col("last_offset").alias("marker_offset"),
        outcome_of("marker").alias("outcome"),
    )  # fmt: skip
    indexes = evidence.aborts.select(
        *PARTITION, "snapshot", "producer_id", f.col("last_offset").alias("marker_offset"),
        f.lit(ABORTED).alias("outcome"),
    )  # fmt: skip
    stored = (
        logs.unionAll(indexes)
        .join(_replicated(evidence), [*PARTITION, "snapshot"])
        .where("marker_offset < replicated")
        .select(*PARTITION, "producer_id", "marker_offset", "outcome")
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
    return stored.unionAll(observed).distinct()


def _replicated(evidence: Evidence) -> DataFrame:
    """Return PARTITION, snapshot, ``replicated``: the highest high watermark that any replica knew then."""
    return evidence.states.groupBy(*PARTITION, "snapshot").agg(f.max("high_watermark").alias("replicated"))


def client_outcomes(history: DataFrame) -> DataFrame:
    """Return run, txn header, ``client_outcome``, ``some_lost`` of every transaction that a client wrote in.

    The outcome is null where the client saw no end acknowledged; ``some_lost``: nor all of its records.
    """
    is_ok, is_record = f.col("type") == "ok", f.col("f") == "produce"
    outcome = f.when(f.col("f") == "commit", COMMITTED).when(f.col("f") == "abort", ABORTED)
    return (
        history.where("transactional_id IS NOT NULL")
        .groupBy("run", _txn_header())
        .agg(
            f.max(f.when(is_ok, outcome)).alias("client_outcome"),
            (f.count(f.when(is_record & (f.col("type") == "invoke"), 1)) > f.count(f.when(is_record & is_ok, 1))).alias(
                "some_lost"
            ),
        )
    )


ACKED, HELD_AFTER, HELD_BEFORE, NOTED = range(4)
"""Who tells of a record, the best word first: client, final log, log before the return, observer."""


def known_records(evidence: Evidence, markers: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return every record that is known to have been written below the bound, with its truth.

    From the client's acknowledgements and from what any replica held below a high watermark of that time
    (beyond it a replica may hold what is truncated later). Where several tell of one offset, the best word
    counts; the observer tells producer ids only. ``later_offset`` is the key's first record at or beyond the
    bound that is not known to be aborted.

    A client knows the outcome of the records that were acknowledged to it. One that it was told nothing of
    may be a duplicate in another transaction than its header says, unless its transaction lost one.

    Does not tell a record that was truncated from one that was compacted away since, where others had
    already gone on past its offset and nothing else is known of that.
    """
    acked = evidence.history.where("f = 'produce' AND type = 'ok'").select(
        *PARTITION,
        "offset",
        f.lit(ACKED).alias("rank"),
        f.lit(False).alias("control"),
        f.encode("key", "utf-8").alias("key"),
        "tombstone",
        f.when(f.col("transactional_id").isNotNull(), _txn_header()).alias("txn"),
        f.col("transactional_id").isNotNull().alias("transactional"),
        f.lit(None).cast("long").alias("producer_id"),
    )
    stored = (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .withColumn("offset", f.coalesce("offset", "last_offset"))
        .join(_replicated(evidence), [*PARTITION, "snapshot"])
        .where("offset < replicated")
        .withColumn("rank", f.when(f.col("snapshot") == AFTER_REJOIN, HELD_AFTER).otherwise(HELD_BEFORE))
        .select(*acked.columns)
    )
    nothing = {name: f.lit(None).alias(name) for name in ("control", "key", "tombstone", "txn", "transactional")}
    noted = (
        evidence.observations.select(*PARTITION, f.explode("appeared").alias("seen"))
        .where(f.col("seen.kind").isin("value", "tombstone") & (f.col("seen.producer_id") >= 0))
        .select(
            *PARTITION, f.col("seen.offset").alias("offset"), f.lit(NOTED).alias("rank"), *nothing.values(),
            f.col("seen.producer_id").alias("producer_id"),
        )
    )  # fmt: skip
    best = f.min_by
    records = held(
        acked.unionAll(stored)
        .unionAll(noted)
        .groupBy(*PARTITION, "offset")
        .agg(
            f.min("rank").alias("told_by"),
            *(best(name, "rank").alias(name) for name in nothing),
            best("producer_id", f.when(f.col("producer_id").isNotNull(), f.col("rank"))).alias("producer_id"),
        )
        .where((f.col("told_by") < NOTED) & ~f.col("control"))
        .join(replicas.select(*PARTITION, "bound").distinct(), PARTITION)
    )
    by_marker = _first_marker(records, markers)
    by_client = f.when((f.col("told_by") == ACKED) | f.col("some_lost"), f.col("client_outcome"))
    beyond = f.when((f.col("offset") >= f.col("bound")) & ~f.col("truth").eqNullSafe(ABORTED), f.col("offset"))
    return (
        records.join(client_outcomes(evidence.history), ["run", "txn"], "left")
        .join(by_marker, [*PARTITION, "offset"], "left")
        .withColumn(
            "truth",
            f.when(~f.col("transactional"), COMMITTED).otherwise(f.coalesce(by_client, "marker_outcome")),
        )
        .withColumn("later_offset", f.min(beyond).over(Window.partitionBy(*PARTITION, "key")))
        .where("offset < bound")
        .select(
            *PARTITION,
            "offset",
            "key",
            "tombstone",
            "txn",
            "transactional",
            "producer_id",
            "truth",
            "later_offset",
        )
    )


def _first_marker(records: DataFrame, markers: DataFrame) -> DataFrame:
    """Return PARTITION, offset, ``marker_outcome``: by the first marker after each transactional record."""
    after = from_here_on([*PARTITION, "producer_id"], "at")
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
    when a key without any committed record has one. Legal: a log that starts after the true record, and one
    that reaches a later record of the key, beyond the bound, for which it may have cleaned all before.
    """
    last = f.max(f.when(f.col("truth") == COMMITTED, f.struct("offset", "tombstone")))
    unsure = f.max(f.when(f.col("truth").isNull(), f.col("offset")))
    true_states = (
        known.groupBy(*PARTITION, "key")
        .agg(last.alias("true"), unsure.alias("unsure"), f.min("later_offset").alias("later_offset"))
        .where(f.col("unsure").isNull() | (f.col("unsure") < f.col("true.offset")))
        .select(
            *PARTITION,
            "key",
            f.col("true.offset").alias("true_offset"),
            f.col("true.tombstone").alias("true_tombstone"),
            "later_offset",
        )
    )
    truths = known.select(*PARTITION, "offset", "truth")
    here = (
        records.where(f.col("belief") == COMMITTED)
        .groupBy(*REPLICA, "key")
        .agg(f.max(f.struct("offset", "tombstone")).alias("here"))
        .select(
            *REPLICA,
            "key",
            f.col("here.offset").alias("here_offset"),
            f.col("here.tombstone").alias("here_tombstone"),
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
        in_one(true_states.join(replicas.select(*REPLICA, "log_start", "log_end"), PARTITION))
        .where("later_offset IS NULL OR later_offset >= log_end")
        .join(here, [*REPLICA, "key"], "left")
        .where(wrong & (f.col("true_offset").isNull() | (f.col("true_offset") >= f.col("log_start"))))
    )


def _txn_header() -> f.Column:  # type: ignore[name-defined]
    return f.concat_ws("/", "transactional_id", f.col("txn").cast("string")).alias("txn")
