"""One ABORT that replicas take for the end of different stretches: their logs may agree, and their beliefs do not.

Verifies: the spans of aborted transactions (``.txnindex``, or what brokers named) that end at the same marker below
the bound, against each other. The longer one may reach over a marker that its replica has missed, when compaction has
removed the records that would show it. Or its replica is right, and the other one copied a log of which cleaning had
removed the transaction's first batches. The logs do not tell these apart, so this is no finding; it forbids ``clean``.
Who received everything may tell (`harness.audit.span_attribution`).

Does not verify: spans that only one replica has, as the index goes with the marker.

Source: `ProducerAppendInfo`, `TransactionIndex`, `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return REPLICA of the longest span, ``reason``, and of all replicas ``spans``, ``producer_id``, ``last_offset``.

    ``spans``: ``broker``, ``first_offset`` of each replica that has the marker's span and whose log covers the longest;
    ``leader_epoch``: one in which, or after which, the longest began.
    """
    return compare(judged.evidence.aborts, judged.evidence.epochs, judged.replicas)


def compare(aborts: DataFrame, epochs: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return the same of `ABORTS`, `EPOCHS` and of replicas as in `judged.Judged`."""
    one = f.struct("first_offset", "broker", "log_start")
    differing = (
        colocated(aborts)
        .join(replicas.select(*REPLICA, "log_start", "bound"), REPLICA)
        .where("last_offset < bound")
        .groupBy(*PARTITION, "producer_id", "last_offset")
        .agg(f.min(one).alias("longest"), f.max(one).alias("shortest"), f.collect_list(one).alias("all"))
        .where("longest.first_offset < shortest.first_offset AND shortest.log_start <= longest.first_offset")
        .select(
            *PARTITION,
            f.col("longest.broker").alias("broker"),
            f.col("longest.first_offset").alias("longest_from"),
            "producer_id",
            "last_offset",
            f.filter("all", lambda span: span["log_start"] <= f.col("longest.first_offset")).alias("spans"),
            f.format_string(
                "it counts what producer %d wrote from offset %d to %d as aborted, broker %d only from %d on: it "
                "missed a marker in between, or the other one copied a log that was cleaned before",
                "producer_id",
                "longest.first_offset",
                "last_offset",
                "shortest.broker",
                "shortest.first_offset",
            ).alias("reason"),
        )
    )
    # Where a replica has an epoch begin is never before it did (see `unreplicated_tails`).
    began = epochs.select(*PARTITION, "leader_epoch", "start_offset")
    return (
        colocated(differing)
        .join(colocated(began), PARTITION, "left")
        .groupBy(*differing.columns)
        .agg(f.max(f.when(f.col("start_offset") <= f.col("longest_from"), f.col("leader_epoch"))).alias("leader_epoch"))
        .drop("longest_from")
    )
