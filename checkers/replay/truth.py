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

from checkers.evidence.tables import PARTITION, REPLICA, held, in_one
from checkers.replay.batch_outcomes import ABORTED, COMMITTED, from_here_on, outcome_of
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Evidence


UNBOUNDED = 2**63 - 1


def bounded_replicas(evidence: Evidence) -> DataFrame:
    """Return every replica after the rejoin with its log end, as `bounded` gives them.

    Where no client is known, also as `with_whole_beyond` does, and ``has_transactions``: true where its partition has
    any transactional batch, else null.
    """
    ends = evidence.final.groupBy(*REPLICA).agg((f.max("last_offset") + 1).alias("log_end"))
    states = evidence.states.where(f.col("snapshot") == AFTER_REJOIN).drop("log_end").join(ends, REPLICA, "left")
    replicas = bounded(states)
    if evidence.has_clients:
        return replicas
    held_beyond = (
        evidence.final.withColumn("at", f.coalesce("offset", f.when(f.col("marker").isNotNull(), f.col("last_offset"))))
        .select(*REPLICA, "at")
        .join(replicas.select(*REPLICA, "shortest"), REPLICA)
        .where("at >= shortest")
        .groupBy(*REPLICA)
        .agg(f.count("*").alias("held_beyond"))
    )
    with_transactions = evidence.entries.where("transactional").select(*PARTITION).distinct()
    return with_whole_beyond(in_one(replicas), in_one(held_beyond)).join(
        in_one(with_transactions).withColumn("has_transactions", f.lit(True)), PARTITION, "left"
    )


def bounded(states: DataFrame) -> DataFrame:
    """Add ``shortest``, the shortest log end of the partition, and its ``bound`` to replicas with their log ends.

    The bound is the smaller of the highest high watermark that any replica knows and the shortest log end:
    a checkpoint may lag by seconds, so the smallest high watermark would say nothing.
    """
    everywhere = Window.partitionBy(*PARTITION)
    return (
        states.withColumn("log_end", f.coalesce("log_end", "log_start"))
        .withColumn("shortest", f.min("log_end").over(everywhere))
        .withColumn("bound", f.least(f.max("high_watermark").over(everywhere), "shortest"))
    )


def with_whole_beyond(replicas: DataFrame, held_beyond: DataFrame) -> DataFrame:
    """Add ``whole_beyond``: whether every offset from the shortest log end on is held, so that none was removed there.

    It is as good where the log starts at that end or later: of what is compared, it holds nothing to be removed. Where
    reading was cut nobody knows. And ``nothing_beyond``: whether that is so on every replica. ``held_beyond``:
    REPLICA, ``held_beyond``, the number of offsets that are held there.
    """
    is_whole = f.coalesce("held_beyond", f.lit(0)) == f.col("log_end") - f.col("shortest")
    is_whole |= f.col("log_start") >= f.col("shortest")
    is_whole &= ~f.coalesce("cut", f.lit(False))
    return (
        replicas.join(held_beyond, REPLICA, "left")
        .withColumn("whole_beyond", is_whole)
        .withColumn("nothing_beyond", f.min("whole_beyond").over(Window.partitionBy(*PARTITION)))
        .drop("held_beyond")
    )


def with_stable_ends(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    """Add ``stable_end``: the last stable offset, or where the broker was not asked for it what its log gives.

    ``opened`` as `replay.open_transactions` gives them.
    """
    first = opened.groupBy(*REPLICA).agg(f.min("first_offset").alias("open_from"))
    return (
        in_one(replicas)
        .join(in_one(first), REPLICA, "left")
        .withColumn("stable_end", f.coalesce("last_stable_offset", "open_from", "log_end"))
        .drop("open_from")
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
    """Return PARTITION, snapshot, ``replicated``: the highest high watermark that any replica knew then.

    Where none is known, as of folders without checkpoints, all that is held counts.
    """
    return evidence.states.groupBy(*PARTITION, "snapshot").agg(
        f.coalesce(f.max("high_watermark"), f.lit(UNBOUNDED)).alias("replicated")
    )


def client_outcomes(history: DataFrame) -> DataFrame:
    """Return run, txn header, ``client_outcome``, ``some_lost`` of every transaction that a client wrote in.

    The outcome is null where the client saw no end acknowledged; ``some_lost``: nor all of its records. The header of
    what is in no transaction is null, and joins nothing.
    """
    is_ok, is_record = f.col("type") == "ok", f.col("f") == "produce"
    outcome = f.when(f.col("f") == "commit", COMMITTED).when(f.col("f") == "abort", ABORTED)
    return history.groupBy("run", _txn_header()).agg(
        f.first(f.when(is_ok, outcome), ignorenulls=True).alias("client_outcome"),
        (f.count(f.when(is_record & (f.col("type") == "invoke"), 1)) > f.count(f.when(is_record & is_ok, 1))).alias(
            "some_lost"
        ),
    )


ACKED, HELD_AFTER, HELD_BEFORE, NOTED = range(4)
"""Who tells of a record, the best word first: client, final log, log before the return, observer."""


def known_records(evidence: Evidence, markers: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return every record with a key that is known to have been written below the bound, with its truth.

    From the client's acknowledgements and from what any replica held below a high watermark of that time
    (beyond it a replica may hold what is truncated later). Where several tell of one offset, the best word
    counts, and of equal ones one with the transactional bit: Redpanda's compaction may take it, and nothing gives it.
    The observer tells producer ids only. ``goes_on``: whether the key has a record at or beyond the bound that is not
    known to be aborted.

    A client knows the outcome of the records that were acknowledged to it. One that it was told nothing of
    may be a duplicate in another transaction than its header says, unless its transaction lost one.

    Does not tell a record that was truncated from one that was compacted away since, where others had
    already gone on past its offset and nothing else is known of that.
    """
    # An offset comes with an acknowledgement.
    acked = evidence.history.where("offset IS NOT NULL").select(
        *PARTITION,
        "offset",
        f.lit(ACKED).alias("rank"),
        f.encode("key", "utf-8").alias("key"),
        "tombstone",
        _txn_header(),
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
    nothing = {name: f.lit(None).alias(name) for name in ("key", "tombstone", "txn", "transactional")}
    noted = (
        evidence.observations.select(*PARTITION, f.explode("appeared").alias("seen"))
        .where(f.col("seen.kind").isin("value", "tombstone"))
        .select(
            *PARTITION, f.col("seen.offset").alias("offset"), f.lit(NOTED).alias("rank"), *nothing.values(),
            f.col("seen.producer_id").alias("producer_id"),
        )
    )  # fmt: skip
    best, word = f.min_by, f.struct("rank", ~f.col("transactional"))
    records = held(
        acked.unionAll(stored)
        .unionAll(noted)
        .groupBy(*PARTITION, "offset")
        .agg(
            f.min("rank").alias("told_by"),
            *(best(name, word).alias(name) for name in nothing),
            best("producer_id", f.when(f.col("producer_id").isNotNull(), f.col("rank"))).alias("producer_id"),
        )
        # Markers have no key, nor has what the observer alone tells. A record without one is invalid in a compacted
        # topic, and every cleaner removes it (`Cleaner.shouldRetainRecord`).
        .where("key IS NOT NULL")
        .join(replicas.select(*PARTITION, "bound").distinct(), PARTITION)
    )
    by_client = f.when((f.col("told_by") == ACKED) | f.col("some_lost"), f.col("client_outcome"))
    is_later = (f.col("offset") >= f.col("bound")) & ~f.col("truth").eqNullSafe(ABORTED)
    return (
        _with_first_marker(records, markers)
        .join(client_outcomes(evidence.history), ["run", "txn"], "left")
        .withColumn(
            "truth",
            f.when(~f.col("transactional"), COMMITTED).otherwise(f.coalesce(by_client, "marker_outcome")),
        )
        .withColumn("goes_on", f.bool_or(is_later).over(Window.partitionBy(*PARTITION, "key")))
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
            "first_marker",
            "goes_on",
        )
    )


def _with_first_marker(records: DataFrame, markers: DataFrame) -> DataFrame:
    """Add ``marker_outcome`` and ``first_marker``, its offset: of the producer's first marker after each record."""
    marks = markers.select(
        *PARTITION,
        "producer_id",
        f.col("marker_offset").alias("offset"),
        f.struct("outcome", "marker_offset").alias("mark"),
    )
    after = from_here_on([*PARTITION, "producer_id"], "offset")
    return (
        in_one(records.unionByName(marks, allowMissingColumns=True))
        .withColumn("first", f.last("mark", ignorenulls=True).over(after))
        .where("mark IS NULL")
        .withColumns({"marker_outcome": f.col("first.outcome"), "first_marker": f.col("first.marker_offset")})
        .drop("mark", "first")
    )


def later_keys(covered: DataFrame) -> DataFrame:
    """Return PARTITION, key of every key with a record at or beyond the bound that its replica does not hold aborted.

    ``covered``: records of every replica from its log start on, with their beliefs and ``bound``.
    """
    return (
        covered.where((f.col("offset") >= f.col("bound")) & (f.col("belief") != ABORTED))
        .select(*PARTITION, "key")
        .distinct()
    )


def true_states(known: DataFrame) -> DataFrame:
    """Return PARTITION, key, ``true_offset``, ``true_tombstone``, ``true_transactional`` of each key.

    That is its final state, where it is known: the last record that is not aborted. Where its outcome is unknown, the
    key is left out, and so is one without any such record: whoever serves it serves what was aborted. Keys that go on
    are left out, too.
    """
    return (
        known.where("NOT goes_on")
        .where(~f.col("truth").eqNullSafe(ABORTED))
        .groupBy(*PARTITION, "key")
        .agg(f.max(f.struct("offset", "tombstone", "truth", "transactional")).alias("true"))
        .where(f.col("true.truth") == COMMITTED)
        .select(
            *PARTITION,
            "key",
            f.col("true.offset").alias("true_offset"),
            f.col("true.tombstone").alias("true_tombstone"),
            f.col("true.transactional").alias("true_transactional"),
        )
    )


def differing_keys(
    known: DataFrame, records: DataFrame, replicas: DataFrame, undecided: DataFrame | None = None
) -> DataFrame:
    """Return the keys whose final state on a replica is not the true one.

    REPLICA, key, true_offset, true_tombstone, true_transactional, here_offset, here_tombstone, here_truth. A state is
    wrong when a deleted key has a value here, or when the last value is not what is alive here. Legal: a log that
    starts after the true record, and anything where the key has a later record, beyond the bound: a replica may have
    cleaned by it all that was before, and others, which do not reach it, may have copied that log.
    ``undecided``: PARTITION, key of more keys to be left out.
    """
    states = true_states(known if undecided is None else known.join(undecided, [*PARTITION, "key"], "left_anti"))
    truths = known.select(*PARTITION, f.col("offset").alias("here_offset"), f.col("truth").alias("here_truth"))
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
        .join(truths, [*PARTITION, "here_offset"], "left")
    )
    wrong = f.when(f.col("true_tombstone"), ~f.col("here_tombstone")).otherwise(
        ~f.col("here_offset").eqNullSafe(f.col("true_offset"))
    )
    return (
        in_one(states.join(replicas.select(*REPLICA, "log_start"), PARTITION))
        .where("true_offset >= log_start")
        .join(here, [*REPLICA, "key"], "left")
        .where(wrong)
    )


def _txn_header() -> f.Column:  # type: ignore[name-defined]
    return f.concat("transactional_id", f.lit("/"), f.col("txn").cast("string")).alias("txn")
