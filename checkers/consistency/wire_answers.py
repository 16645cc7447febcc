"""A broker's answers about a replica against the replica's log: both come from the same broker, and must agree.

Verifies, for replicas whose broker was asked about the log as it was read (``served``):

* the same transactions are open in the broker's answer and in its log;
* its last stable offset is not past a transaction that is open in its log.

Does not verify: last stable offsets that lag; offsets below the log start.

Source: `ProducerStateManager`; DescribeProducers (KIP-664).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.parse import FETCH
from checkers.evidence.schemas import ABORTS
from checkers.evidence.tables import REPLICA, checkpointed
from checkers.finding import reason
from checkers.replay.batch_outcomes import ABORTED, with_first_marker
from harness.broker_files.segments.records import ABORT
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Evidence


def compare(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    """Return REPLICA, ``reason``; takes ``replicas`` and ``opened`` as in `judged.Judged`."""
    return _open_transactions_differ(replicas, opened).unionByName(_last_stable_past_open(replicas, opened))


def with_served_aborts(evidence: Evidence) -> Evidence:
    """Return the evidence with the aborted transactions that brokers listed when they served a log.

    A broker lists a transaction's first offset; for a read_committed consumer the transaction ends at the producer's
    next ABORT in that log. A transaction without such a marker is left out.
    """
    listed = evidence.states.select(*REPLICA, f.explode("aborted").alias("txn")).select(
        *REPLICA, f.col("txn")[0].alias("producer_id"), f.col("txn")[1].alias("first_offset")
    )
    aborts = evidence.entries.where(f.col("marker") == ABORT).select(
        *REPLICA, "producer_id", f.col("last_offset").alias("marker_offset"), f.lit(ABORTED).alias("outcome")
    )
    spans = (
        with_first_marker(listed, aborts, at="first_offset", group=(*REPLICA, "producer_id"))
        .where("first_marker IS NOT NULL")
        .withColumnRenamed("first_marker", "last_offset")
        .withColumns({"snapshot": f.lit(AFTER_REJOIN), "source": f.lit(FETCH), "problem": f.lit(None).cast("string")})
    )
    return replace(evidence, aborts=checkpointed(evidence.aborts.unionByName(spans.select(*ABORTS.names))))


def _open_transactions_differ(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    asked = replicas.where("open IS NOT NULL")
    answered = asked.select(*REPLICA, f.explode("open").alias("txn")).select(
        *REPLICA, f.col("txn")[0].alias("producer_id"), f.lit(True).alias("answered")
    )
    derived = opened.join(asked.select(*REPLICA), REPLICA, "left_semi").select(
        *REPLICA, "producer_id", f.lit(True).alias("derived")
    )
    return (
        answered.join(derived, ["producer_id", *REPLICA], "full")
        .where("answered IS NULL OR derived IS NULL")
        .select(
            *REPLICA,
            reason(
                "the broker says that producer {producer_id} has {answered} open transaction, its log that it has "
                "{derived}",
                answered=f.when(f.col("answered").isNull(), "no").otherwise("an"),
                derived=f.when(f.col("derived").isNull(), "none").otherwise("one"),
            ),
        )
    )


def _last_stable_past_open(replicas: DataFrame, opened: DataFrame) -> DataFrame:
    return (
        opened.join(replicas.select(*REPLICA, "last_stable_offset"), REPLICA)
        .where("last_stable_offset > first_offset")
        .select(
            *REPLICA,
            reason(
                "the broker's last stable offset {last_stable_offset} is past offset {first_offset}, where its log "
                "leaves a transaction open"
            ),
        )
    )
