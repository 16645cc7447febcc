"""last-value: a reader of any replica ends up with each key's last committed record.

Verifies: for every key whose last record below the bound is known to be committed, that each replica whose log starts
at or before that record still gives that state: the record itself if it is a value, and no older value if it is a
tombstone (which may have been removed). A replica gives the records that it believes committed: no reader receives a
record that is hidden or in an open transaction. A record beyond a last stable offset that does not advance is retained
(stuck-lso reports this). Where an anomaly has changed a final state on a replica, this guarantee shows the lost data.

Does not verify: a key whose last record is in a transaction whose end was not acknowledged to its client; keys with a
later record at or beyond the bound; records that were superseded, whose loss is legal.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 4 (the final state of all records).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import results, sentence
from checkers.replay.truth import client_outcomes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.removals import ObservedRemovals


def check(observed: ObservedRemovals, guarantee: str) -> DataFrame:
    """Return `checkers.finding.results`; the offset is the last committed record's."""
    judged = observed.judged
    unacknowledged = client_outcomes(judged.evidence.history).where("client_outcome IS NULL").select("run", "txn")
    undecided = judged.written.join(unacknowledged, ["run", "txn"], "left_semi").selectExpr(
        *PARTITION, "offset AS true_offset"
    )
    wrong = judged.differing_keys.selectExpr(*REPLICA, "key", "here_offset", "true AS wrong")
    rows = (
        judged.expected.join(colocated(undecided), ["true_offset", *PARTITION], "left_anti")
        .join(wrong, ["key", *REPLICA], "left")
        .withColumn("offset", f.col("true_offset"))
    )
    return results(
        rows,
        guarantee,
        violation="wrong",
        explanation=sentence(
            "key {key!r}: its last committed record is the {kind} at offset {true_offset}, and this replica serves "
            "{here}",
            kind="if(true_tombstone, 'delete', 'value')",
            here="coalesce(concat('the record at offset ', here_offset), 'nothing')",
        ),
        witness="true_offset AS last_committed_at, here_offset AS last_here_at",
    )
