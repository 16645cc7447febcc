"""hanging-transaction: a transaction is open on every replica, but its coordinator has finished it (KIP-664).

Verifies: a transaction that is open below the bound in every replica's log, against the producer's last record in
``__transaction_state``: not Ongoing, PrepareCommit, PrepareAbort or PrepareEpochFence.
Does not verify: transactions without the coordinator's log, or whose transactional id has expired; transactions that
are open on some replicas only (`stuck_lso`).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import BATCH, HANGING_TRANSACTION, VISIBLE, Finder, findings, sentence
from checkers.replay.judged import Judged
from harness.broker_files.internal_topics.decode import FINISHED


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where read_committed is frozen on every replica."""
    count = f.count("*").over(Window.partitionBy(*PARTITION)).alias("replicas")
    replicas = judged.replicas.select(*REPLICA, "bound", "high_watermark", count)
    opened = (
        colocated(judged.opened.join(replicas, REPLICA))
        .where("first_offset < bound")
        .withColumn("holders", f.count("*").over(Window.partitionBy("producer_id", *PARTITION)))
        .where("holders = replicas")
    )
    finished = (
        judged.evidence.coordinators.groupBy("run", "transactional_id")
        .agg(f.max_by(f.struct("producer_id", "state"), "offset").alias("last"))
        .select("run", "transactional_id", "last.producer_id", "last.state")
        .where(f.col("state").isin(*FINISHED))
    )
    return findings(
        opened.join(colocated(finished), ["run", "producer_id"]),
        HANGING_TRANSACTION,
        offset="first_offset",
        shown_by=BATCH,
        key=None,
        effect=VISIBLE,
        explanation=sentence(
            "read_committed is frozen at {first_offset} on every replica that was read: the transaction of producer "
            "{producer_id} ({transactional_id}) is open there, and its coordinator has finished it ({state})"
        ),
        witness="transactional_id, state AS coordinator_says, high_watermark AS high_watermark_here",
    )


FINDER = Finder(
    name=HANGING_TRANSACTION,
    check=check,
    in_runs=False,
    means="read_committed consumers of {partition} get no records from that offset on, on any broker: no marker was "
    "written for a transaction that its coordinator has finished (KIP-664; KIP-890 "
    "prevents new hanging transactions)",
)
