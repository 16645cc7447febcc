"""last-value: each key's last committed record is what a reader of any replica ends up with.

Verifies: for every key whose last record below the bound is known to be committed, that each replica whose log starts
at or before it still gives that state: the record itself where it is a value, and no older value where it is a delete
(whose tombstone may be gone by then). What a replica gives is what it believes committed: a record that is there, and
hidden or held open, is not retained for anybody who reads it; what only waits behind a last stable offset that does not
move is retained (stuck-lso tells of it). So this is broken wherever one of the anomalies has
changed a final state, on the replica that was away; they say how, this says what is lost.

Does not verify: a key whose last record is in a transaction that its client did not see end; keys that go on at or
beyond the bound; records that were superseded, whose loss is legal.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 4 (the final state of all records).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import number, printable
from checkers.guarantees.told import told
from checkers.replay.truth import client_outcomes, true_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "last-value"


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`; the offset is that of the last committed record."""
    judged = watched.judged
    doubtful = client_outcomes(judged.evidence.history).where("client_outcome IS NULL").select("run", "txn")
    undecided = judged.written.join(doubtful, ["run", "txn"], "left_semi").select(
        *PARTITION, f.col("offset").alias("true_offset")
    )
    wrong = judged.differing_keys.select(*REPLICA, "key", "here_offset", f.lit(True).alias("wrong"))
    rows = (
        colocated(true_states(judged.written).join(judged.replicas.select(*REPLICA, "log_start"), PARTITION))
        .where("true_offset >= log_start")
        .join(colocated(undecided), [*PARTITION, "true_offset"], "left_anti")
        .join(wrong, [*REPLICA, "key"], "left")
        .withColumn("offset", f.col("true_offset"))
    )
    return told(
        rows,
        NAME,
        broken="wrong",
        explanation=f.format_string(
            "key %s: its last committed record is the %s at offset %d, and this replica gives %s",
            printable("key"),
            f.when(f.col("true_tombstone"), "delete").otherwise("value"),
            "true_offset",
            f.when(f.col("here_offset").isNull(), "nothing").otherwise(
                f.concat(f.lit("the record at "), number("here_offset"))
            ),
        ),
        witness={"last_committed_at": f.col("true_offset"), "last_here_at": f.col("here_offset")},
    )
