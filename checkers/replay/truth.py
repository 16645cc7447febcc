"""The truth: the outcome of every transaction and the last committed record of every key.

A transaction's outcome comes from the client. If the client does not know the outcome (``info``), it comes from the
*earliest* marker of the producer after the record that was ever seen on any replica, at any snapshot: a marker can be
removed but never added later. If neither client nor marker shows the outcome, it is null, and nothing is judged by it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, UNBOUNDED, Evidence, checkpointed, colocated
from checkers.replay.batch_outcomes import ABORTED, outcome_of, with_first_marker
from harness.broker_files.segments.records import DATA, MARKERS
from harness.run_folder.store import AFTER_REJOIN


def bounded_replicas(evidence: Evidence) -> DataFrame:
    """Return every replica after the rejoin with its log end and the columns that `bounded` adds.

    Without a history of clients, also with the columns of `with_whole_beyond` and ``has_transactions``: true if the
    partition has any transactional batch, else null.
    """
    ends = evidence.final.groupBy(*REPLICA).agg((f.max("last_offset") + 1).alias("log_end"))
    states = evidence.states.where(f.col("snapshot") == AFTER_REJOIN).drop("log_end").join(ends, REPLICA, "left")
    replicas = bounded(states)
    if evidence.has_clients:
        return replicas
    held_beyond = (
        evidence.final.selectExpr(*REPLICA, "coalesce(offset, if(marker IS NOT NULL, last_offset, NULL)) AS at")
        .join(replicas.select(*REPLICA, "shortest"), REPLICA)
        .where("at >= shortest")
        .groupBy(*REPLICA)
        .agg(f.count("*").alias("held_beyond"))
    )
    transactional = evidence.entries.where("transactional").selectExpr(*PARTITION, "true AS has_transactions")
    with_beyond = with_whole_beyond(colocated(replicas), colocated(held_beyond))
    return with_beyond.join(colocated(transactional.distinct()), PARTITION, "left")


def bounded(states: DataFrame) -> DataFrame:
    """Add ``shortest``, the shortest log end of the partition, its ``bound``, and ``counts_from`` to replicas.

    The bound is the smaller of the highest high watermark of any replica (the lowest may lag by seconds in a
    checkpoint) and the shortest log end; for a running cluster at most ``read_bound``. Records below ``counts_from`` do
    not count: the log start, or a higher log start in any broker's checkpoint. Followers adopt the leader's log start
    with their next fetch; but a running broker writes its checkpoint once a minute
    (``log.flush.start.offset.checkpoint.interval.ms``), and never if the log start is the first segment's offset
    (``LogManager.checkpointLogStartOffsetsInDir``). So a copy may not show it.
    """
    everywhere = Window.partitionBy(*PARTITION)
    return (
        states.withColumn("log_end", f.coalesce("log_end", "log_start"))
        .withColumn("shortest", f.min("log_end").over(everywhere))
        .withColumn(
            "bound", f.least(f.max("high_watermark").over(everywhere), "shortest", f.min("read_bound").over(everywhere))
        )
        .withColumn("counts_from", f.greatest("log_start", f.max("start_checkpoint").over(everywhere)))
    )


def with_whole_beyond(replicas: DataFrame, held_beyond: DataFrame) -> DataFrame:
    """Add ``whole_beyond``, and ``nothing_beyond``: whether it is true on every replica.

    ``whole_beyond``: whether the log has every offset from the shortest log end on, so that no record was removed
    there, or starts at or after that end. A replica of a running cluster was instead read to an end that lies after
    everything that any cleaner knew (``complete``). ``held_beyond``: REPLICA, ``held_beyond``: the number of offsets
    that the log has there.
    """
    is_whole = f.expr("coalesce(complete, coalesce(held_beyond, 0) = log_end - shortest OR log_start >= shortest)")
    return (
        replicas.join(held_beyond, REPLICA, "left")
        .withColumn("whole_beyond", is_whole)
        .withColumn("nothing_beyond", f.min("whole_beyond").over(Window.partitionBy(*PARTITION)))
        .drop("held_beyond")
    )


def with_stable_ends(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    """Add ``open_from`` and ``stable_end``; ``opened``: from `batch_outcomes.open_transactions`.

    ``open_from``: the first offset of the first open transaction, or null; read_committed readers receive no record
    from there on. ``stable_end``: the last stable offset, derived from the log if the broker was not asked.
    """
    first = opened.groupBy(*REPLICA).agg(f.min("first_offset").alias("open_from"))
    return (
        colocated(replicas)
        .join(colocated(first), REPLICA, "left")
        .withColumn("stable_end", f.coalesce("last_stable_offset", "open_from", "log_end"))
    )


def markers_seen(evidence: Evidence) -> DataFrame:
    """Return PARTITION, producer_id, marker_offset, outcome of every marker that was ever seen on any replica.

    Markers come from logs, ``.txnindex`` files and the observer. A stored marker at or beyond every high watermark of
    its snapshot does not count, as it may have been truncated later.
    """
    columns = (*PARTITION, "snapshot", "producer_id", "last_offset")
    markers = evidence.entries.where(f.col("marker").isin(*MARKERS))
    logs = markers.select(*columns, outcome_of("marker").alias("outcome"))
    indexes = evidence.aborts.select(*columns, f.lit(ABORTED).alias("outcome"))
    stored = (
        logs.unionAll(indexes)
        .join(_replicated(evidence), [*PARTITION, "snapshot"])
        .where("last_offset < replicated")
        .selectExpr(*PARTITION, "producer_id", "last_offset AS marker_offset", "outcome")
    )
    observed = evidence.appeared.where(f.col("kind").isin(*MARKERS)).select(
        *PARTITION, "producer_id", f.col("offset").alias("marker_offset"), outcome_of("kind").alias("outcome")
    )
    return colocated(stored.unionAll(observed)).distinct()


def _replicated(evidence: Evidence) -> DataFrame:
    """Return PARTITION, snapshot, ``replicated``: the highest high watermark of any replica; without any, no limit."""
    highest = f.coalesce(f.max("high_watermark"), f.lit(UNBOUNDED)).alias("replicated")
    return evidence.states.groupBy(*PARTITION, "snapshot").agg(highest)


def client_outcomes(history: DataFrame) -> DataFrame:
    """Return run, txn header, ``client_outcome``, ``some_lost`` of every transaction that a client wrote in.

    The outcome is null if no end of the transaction was acknowledged; ``some_lost``: whether any record was not
    acknowledged. The header of a record outside transactions is null, which joins nothing.
    """
    outcome = f.expr("CASE f WHEN 'commit' THEN 'committed' WHEN 'abort' THEN 'aborted' END")
    return history.groupBy("run", txn_header()).agg(
        f.first(f.when(f.col("type") == "ok", outcome), ignorenulls=True).alias("client_outcome"),
        f.expr("count_if(f = 'produce' AND type = 'invoke') > count_if(f = 'produce' AND type = 'ok')").alias(
            "some_lost"
        ),
    )


BY_CLIENT, BY_FINAL_LOG, BY_LOG_BEFORE_RETURN, BY_OBSERVER = range(4)
"""Sources of a record, the most reliable first."""


def written_records(evidence: Evidence, markers: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return every record with a key that is known to have been written below the bound, with its ``truth``.

    PARTITION, offset, key, tombstone, txn, transactional, producer_id, truth, ``first_marker`` (the offset of its
    producer's first marker after it), ``goes_on`` (whether the key has a record at or beyond the bound that is not
    known to be aborted).

    The sources are the client's acknowledgements and the logs of all replicas below a high watermark of that snapshot
    (records beyond it may have been truncated later). The most reliable source of an offset counts, and among equal
    sources one with the transactional bit: Redpanda's compaction may remove that bit, and nothing adds it. The observer
    has producer ids only. A client knows the outcome of acknowledged records. A record without an acknowledgement may
    be a duplicate in another transaction than its header names, unless its transaction has an unacknowledged record.

    Does not distinguish a truncated record from a record that was compacted away later, if other logs already reached
    past its offset and no other source has that offset.
    """
    facts = ("key", "tombstone", "txn", "transactional")
    # An offset comes with an acknowledgement.
    acked = (
        evidence.history.where("offset IS NOT NULL")
        .withColumns({"txn": txn_header(), "transactional": f.col("transactional_id").isNotNull()})
        .selectExpr(*PARTITION, "offset", f"{BY_CLIENT} AS rank", *facts, "CAST(NULL AS long) AS producer_id")
    )
    stored = (
        evidence.entries.where("offset IS NOT NULL OR marker IS NOT NULL")
        .withColumn("offset", f.coalesce("offset", "last_offset"))
        .join(_replicated(evidence), [*PARTITION, "snapshot"])
        .where("offset < replicated")
        .withColumn("rank", f.when(f.col("snapshot") == AFTER_REJOIN, BY_FINAL_LOG).otherwise(BY_LOG_BEFORE_RETURN))
        .select(*PARTITION, "offset", "rank", *facts, "producer_id")
    )
    observed = evidence.appeared.where(f.col("kind").isin(*DATA)).selectExpr(
        *PARTITION, "offset", f"{BY_OBSERVER} AS rank", *(f"NULL AS {name}" for name in facts), "producer_id"
    )
    best, reliability = f.min_by, f.struct("rank", ~f.col("transactional"))
    records = checkpointed(
        colocated(acked.unionAll(stored).unionAll(observed))
        .groupBy("offset", *PARTITION)
        .agg(
            f.min("rank").alias("source"),
            *(best(name, reliability).alias(name) for name in facts),
            best("producer_id", f.when(f.col("producer_id").isNotNull(), f.col("rank"))).alias("producer_id"),
        )
        # Markers have no key, and neither have records that only the observer saw. Every cleaner removes records
        # without a key (`Cleaner.shouldRetainRecord`).
        .where("key IS NOT NULL")
        .join(replicas.select(*PARTITION, "bound").distinct(), PARTITION)
    )
    by_client = f"if(source = {BY_CLIENT} OR some_lost, client_outcome, NULL)"
    is_later = f.expr("offset >= bound AND NOT truth <=> 'aborted'")
    return (
        with_first_marker(records, markers, at="offset")
        .join(client_outcomes(evidence.history), ["run", "txn"], "left")
        .withColumn("truth", f.expr(f"if(transactional, coalesce({by_client}, marker_outcome), 'committed')"))
        .withColumn("goes_on", f.bool_or(is_later).over(Window.partitionBy("key", *PARTITION)))
        .where("offset < bound")
        .select(*PARTITION, "offset", *facts, "producer_id", "truth", "first_marker", "goes_on")
    )


def expected_states(written: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return REPLICA, key, ``true_offset``, ``true_tombstone``, ``true_transactional`` that each replica must give.

    The final state of a key is its last record that is not aborted. A key is left out without such a record, if the
    outcome of that record is unknown, if that record does not count on the replica (`bounded`), or if the key has a
    later record at or beyond the bound (``goes_on``).
    """
    states = (
        written.where("NOT goes_on AND NOT truth <=> 'aborted'")
        .groupBy("key", *PARTITION)
        .agg(f.max(f.struct("offset", "tombstone", "truth", "transactional")).alias("last"))
        .where("last.truth = 'committed'")
        .selectExpr(
            *PARTITION, "key", *(f"last.{name} AS true_{name}" for name in ("offset", "tombstone", "transactional"))
        )
        .join(replicas.select(*REPLICA, "counts_from"), PARTITION)
    )
    return colocated(states).where("true_offset >= counts_from")


def differing_keys(written: DataFrame, records: DataFrame, expected: DataFrame) -> DataFrame:
    """Return the keys whose final state on a replica is not the true one.

    REPLICA, key, true_offset, true_tombstone, true_transactional, here_offset, here_tombstone, here_truth. A final
    state is wrong if a deleted key has a value on the replica, or if the replica serves another value than the last
    one. Legal: a log that starts after the true record, and any state of a key with a later record at or beyond the
    bound: a replica may have removed all earlier records because of that record, and replicas whose logs end before
    that record may have copied that log. ``expected``: from `expected_states`.
    """
    truths = written.selectExpr(*PARTITION, "offset AS here_offset", "truth AS here_truth")
    here = (
        records.where("belief = 'committed'")
        .groupBy("key", *REPLICA)
        .agg(f.max(f.struct("offset", "tombstone")).alias("here"))
        .selectExpr(*REPLICA, "key", "here.offset AS here_offset", "here.tombstone AS here_tombstone")
        .join(truths, ["here_offset", *PARTITION], "left")
    )
    is_wrong = "if(true_tombstone, NOT here_tombstone, NOT here_offset <=> true_offset)"
    return expected.join(here, ["key", *REPLICA], "left").where(is_wrong)


def txn_header() -> Column:
    """Return the column ``txn``: the header of a transaction's records, by the history; null outside transactions."""
    return f.concat("transactional_id", f.lit("/"), f.col("txn").cast("string")).alias("txn")
