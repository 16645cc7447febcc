"""aborted-to-committed: a replica counts data of an aborted transaction as committed and serves it.

Verifies: every record that a replica still holds below the bound, and believes committed by the next marker
of its producer there, against the transaction's true outcome (see `truth`). One finding a transaction and
replica, with its first such record.

Does not verify: aborted records that the replica has compacted away meanwhile; transactions whose outcome
neither the client nor any marker tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import PARTITION, REPLICA, in_one
from checkers.finding import LATENT, VISIBLE, findings, printable
from checkers.replay import ABORTED, COMMITTED
from harness.scenario import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the first aborted record that is served."""
    aborted = judged.known.where((f.col("truth") == ABORTED) & f.col("transactional")).select(
        *PARTITION, "offset", f.col("txn").alias("true_txn")
    )
    served = (
        judged.records.where((f.col("belief") == COMMITTED) & f.col("transactional"))
        .join(aborted, [*PARTITION, "offset"])
        .groupBy(*REPLICA, "producer_id", "decided_by", "true_txn")
        .agg(
            f.min("offset").alias("offset"),
            f.min_by("key", "offset").alias("key"),
            f.count("*").alias("records"),
        )
    )
    there = in_one(served).join(judged.replicas.select(*REPLICA, "last_stable_offset"), REPLICA)
    return findings(
        there,
        Anomaly.ABORTED_TO_COMMITTED,
        effect=f.when(f.col("last_stable_offset") <= f.col("offset"), LATENT).otherwise(VISIBLE),
        explanation=f.format_string(
            "aborted record %s is served as committed: transaction %s (producer %d) was aborted, and this broker "
            "takes the COMMIT at offset %d for its end",
            printable("key"),
            f.coalesce("true_txn", f.lit("?")),
            "producer_id",
            "decided_by",
        ),
        witness={
            "transaction": f.col("true_txn"),
            "outcome": f.lit(ABORTED),
            "believed_here": f.lit(COMMITTED),
            "marker_taken_here_at": f.col("decided_by"),
            "records": f.col("records"),
        },
    )
