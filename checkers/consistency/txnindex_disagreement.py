"""Replicas whose ranges of one aborted transaction differ: their logs may agree, but their beliefs do not.

Verifies: the spans of aborted transactions (from ``.txnindex``, or from brokers' answers) that end at the same ABORT
below the bound, against each other. The replica with the longer span may have missed a marker inside it, and compaction
removed the records that would show this. Or that replica is right, and the other one copied a log from which compaction
had removed the transaction's first batches. The logs do not distinguish these cases: ``clean`` is forbidden, without a
finding. A replica that received every record may decide (`harness.audit.explain.attribution.attribute_spans`).

Does not verify: spans that only one replica has, as compaction removes the index entry with the marker.

Source: `ProducerAppendInfo`, `TransactionIndex`, `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import LIST, reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compare(aborts: DataFrame, epochs: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return REPLICA of the longest span, ``reason``, ``spans``, ``producer_id``, ``last_offset``, ``leader_epoch``.

    Also ``offset``, where the longest span begins, and ``shown_by`` (see `checkers.finding.findings`).
    ``spans``: ``broker``, ``first_offset`` of each replica that has a span of the marker and whose log covers the
    longest span; ``leader_epoch``: the epoch in which, or after which, the longest span began. ``aborts``: `ABORTS`.
    ``epochs``: `EPOCHS`. ``replicas``: as in `judged.Judged`.
    """
    replica_span = f.struct("first_offset", "broker", "log_start")
    differing = (
        colocated(aborts)
        .join(replicas.select(*REPLICA, "log_start", "bound"), REPLICA)
        .where("last_offset < bound")
        .groupBy("producer_id", "last_offset", *PARTITION)
        .agg(
            f.min(replica_span).alias("longest"),
            f.max(replica_span).alias("shortest"),
            f.collect_list(replica_span).alias("all"),
        )
        .where("longest.first_offset < shortest.first_offset AND shortest.log_start <= longest.first_offset")
        .select(
            *PARTITION,
            "longest.broker",
            f.col("longest.first_offset").alias("longest_from"),
            "producer_id",
            "last_offset",
            f.filter("all", lambda span: span["log_start"] <= f.col("longest.first_offset")).alias("spans"),
            reason(
                "it counts the records of producer {producer_id} from offset {longest_from} to {last_offset} as "
                "aborted, broker {other} only from {shortest_from} on: it missed a marker in between, or broker "
                "{other} copied a log that had been cleaned",
                longest_from="longest.first_offset",
                other="shortest.broker",
                shortest_from="shortest.first_offset",
            ),
        )
    )
    # On no replica does an epoch begin before its true start offset (see `unreplicated_tails`).
    began = epochs.select(*PARTITION, "leader_epoch", "start_offset")
    return (
        colocated(differing)
        .join(colocated(began), PARTITION, "left")
        .groupBy(*differing.columns)
        .agg(f.expr("max(if(start_offset <= longest_from, leader_epoch, NULL))").alias("leader_epoch"))
        .selectExpr("*", "longest_from AS offset", f"'{LIST}' AS shown_by")
        .drop("longest_from")
    )
