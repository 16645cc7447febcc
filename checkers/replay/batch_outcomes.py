"""The beliefs of a broker: the outcome that its own log gives to each batch; and tails that were never replicated.

Rules (`ProducerStateManager`, `ProducerAppendInfo`, Kafka 3.9 - 4.4): a transactional data batch belongs to
the transaction that the next marker of its producer ends, *in this broker's log*, even if another marker was written
for that transaction. A transactional data batch that compaction has emptied also opens a transaction; an emptied
control batch ends none. Without a following marker the transaction is open on this broker.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from checkers.evidence.tables import PARTITION, REPLICA, Evidence, at_first, checkpointed, colocated
from harness.broker_files.segments.records import ABORT, COMMIT, MARKERS

PRODUCER = (*PARTITION, "producer_id")
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


def outcome_of(marker: str) -> Column:
    """Return the outcome for a column with a marker's type; null for other control records."""
    return f.when(f.col(marker) == COMMIT, COMMITTED).when(f.col(marker) == ABORT, ABORTED)


def from_here_on(group: list[str], offset: str) -> WindowSpec:
    """Return the window of this row and the rows at later offsets, nearest last; no group is buffered in memory."""
    later_first = Window.partitionBy(*group).orderBy(f.col(offset).desc())
    return later_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def with_first_marker(
    rows: DataFrame, markers: DataFrame, *, at: str, group: Sequence[str] = PRODUCER, is_big: bool = False
) -> DataFrame:
    """Add ``first_marker`` and ``marker_outcome``: offset and outcome of the group's first marker after offset ``at``.

    ``markers``: as in `judged.Judged`. ``is_big``: leave the rows of a run distributed.
    """
    marks = markers.selectExpr(*group, f"marker_offset AS {at}", "struct(outcome, marker_offset) AS mark")
    both = rows.unionByName(marks, allowMissingColumns=True)
    first = f.last("mark", ignorenulls=True).over(from_here_on([*group], at))
    return (
        (both if is_big else colocated(both))
        .withColumn("first", first)
        .where("mark IS NULL")
        .selectExpr("*", "first.outcome AS marker_outcome", "first.marker_offset AS first_marker")
        .drop("mark", "first")
    )


BELIEF = ("belief", "decided_by", "decided_in_epoch", "decided_in_leader_epoch")


def with_beliefs(batches: DataFrame) -> DataFrame:
    """Return the data batches, or all their records, of one snapshot and source with `BELIEF`.

    Adds ``belief`` (committed | aborted | open; non-transactional data is committed) and offset, producer epoch and
    leader epoch of the deciding marker (null without a marker). Control batches are left out.
    """
    outcome = outcome_of("marker")
    marker = f.struct(outcome.alias("outcome"), "last_offset", "producer_epoch", "leader_epoch")
    after = from_here_on(["producer_id", *REPLICA], "base_offset")
    return (
        batches.withColumn("decision", f.last(f.when(outcome.isNotNull(), marker), ignorenulls=True).over(after))
        .where("NOT control")
        .selectExpr(
            "*",
            "if(transactional, coalesce(decision.outcome, 'open'), 'committed') AS belief",
            "if(transactional, decision.last_offset, NULL) AS decided_by",
            "if(transactional, decision.producer_epoch, NULL) AS decided_in_epoch",
            "if(transactional, decision.leader_epoch, NULL) AS decided_in_leader_epoch",
        )
        .drop("decision")
    )


def overtaken_transactions(entries: DataFrame, beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``offset``, ``last_offset``, belief, ``decided_by``, ``overtaken_at`` of each log.

    A row is a producer's first batch that is followed by data of a higher producer epoch before any marker of that
    producer: this replica has missed a marker in between. A producer gets a higher epoch only after its transaction
    coordinator has ended the open transaction (KIP-360, KIP-890), and compaction removes a marker only after the last
    batch of its transaction. A gap between epochs proves nothing: other partitions' transactions also increment it.
    """
    in_order = Window.partitionBy("producer_id", *REPLICA).orderBy("base_offset")
    # Markers have no epoch here, so that they neither overtake a batch nor are overtaken.
    markers = entries.where(f.col("marker").isin(*MARKERS)).select(*REPLICA, "base_offset", "producer_id")
    batches = beliefs.where("transactional").select(
        *REPLICA, "base_offset", "producer_id", "last_offset", "producer_epoch", "belief", "decided_by"
    )
    return (
        batches.unionByName(markers, allowMissingColumns=True)
        .withColumn("next_epoch", f.lead("producer_epoch").over(in_order))
        .withColumn("next_offset", f.lead("base_offset").over(in_order))
        .where("next_epoch > producer_epoch")
        .withColumnRenamed("base_offset", "offset")
        .groupBy("producer_id", "belief", "decided_by", *REPLICA)
        .agg(*at_first("offset", "last_offset"), f.min("next_offset").alias("overtaken_at"))
    )


def open_transactions(beliefs: DataFrame) -> DataFrame:
    """Return REPLICA, producer_id, ``first_offset``, ``first_last_offset`` of the first batch of open transactions."""
    return (
        beliefs.where("belief = 'open'")
        .selectExpr("producer_id", *REPLICA, "base_offset AS first_offset", "last_offset AS first_last_offset")
        .groupBy("producer_id", *REPLICA)
        .agg(*at_first("first_offset", "first_last_offset"))
    )


def unreplicated_tails(batches: DataFrame, epochs: DataFrame) -> DataFrame:
    """Return REPLICA, ``stale_from`` of each replica with a tail that was never replicated: its first offset.

    ``batches``: REPLICA, ``base_offset``, ``last_offset`` and ``leader_epoch`` of all batches of one snapshot, or of
    all sequences of batches of one leader epoch. ``epochs``: `EPOCHS`.

    A returning broker truncates such a tail before it follows (KIP-101, KIP-279). Leader epochs rise along a log, and
    all replicas have the same leader epoch at the same offset. If one replica has an epoch at or before an offset, and
    another replica has a lower epoch *at* that offset, a deposed leader wrote the latter record, and that log ends
    before the epoch; or the former, and the latter log has a higher epoch than that log: the leader before was elected
    again. Otherwise both logs continue, and neither has a tail. The start of an epoch comes from a replica's
    ``leader-epoch-checkpoint`` (unless the log ends there: that leader wrote nothing), else from its first batch of
    that epoch. If compaction has removed it, the tail seems to begin later.
    """
    newest = f.max("leader_epoch").over(Window.partitionBy(*REPLICA)).alias("newest")
    places = batches.select(*REPLICA, "base_offset", "last_offset", "leader_epoch", newest)
    logs = places.groupBy("newest", *REPLICA).agg(f.max("last_offset").alias("log_last"))
    checkpoints = epochs.join(colocated(logs), REPLICA).where("start_offset <= log_last")
    starts = (
        places.withColumnRenamed("base_offset", "start_offset")
        .unionByName(checkpoints, allowMissingColumns=True)
        .groupBy(*PARTITION, f.struct("broker", "newest", "leader_epoch").alias("other"))
        .agg(f.min("start_offset").alias("start_offset"))
    )
    return (
        colocated(places.join(colocated(starts), PARTITION))
        .where("other.leader_epoch > leader_epoch AND start_offset <= last_offset")
        .where("newest < other.leader_epoch OR newest > other.newest")
        .withColumn("broker", f.expr("if(newest > other.newest, other.broker, broker)"))
        .groupBy(*REPLICA)
        .agg(f.min("start_offset").alias("stale_from"))
    )


def without_unreplicated_tails(evidence: Evidence) -> Evidence:
    """Return the evidence of copies without the entries of unreplicated tails, also in side files."""
    tails = checkpointed(unreplicated_tails(evidence.entries.where("first_in_batch"), evidence.epochs))
    entries = _before(evidence.entries, tails, f.col("last_offset") + 1)
    return replace(side_files_before(evidence, tails), entries=entries)


def side_files_before(evidence: Evidence, tails: DataFrame) -> Evidence:
    """Return the evidence without the side file entries of unreplicated tails; ``entries`` do not change."""
    return replace(
        evidence,
        aborts=_before(evidence.aborts, tails, f.col("last_offset") + 1),
        producers=_before(evidence.producers, tails, f.col("as_of")),
    )


def _before(table: DataFrame, tails: DataFrame, end: Column) -> DataFrame:
    is_before = f.coalesce(end <= f.col("stale_from"), f.lit(True))
    return checkpointed(colocated(table).join(tails, REPLICA, "left").where(is_before).select(*table.columns))
