"""unexplained-divergence: a key's final state is wrong on a replica, and none of the four anomalies explains that.

Verifies: every key whose last committed record is known, against the last record that each replica believes committed.
Other anomalies explain three cases: the value that the replica serves was aborted; the true record is hidden or open on
the replica; the missing record is a tombstone. Without a history of clients also: a value that one replica has lost
while an older value of the key is alive there, and that no abort is likely to have removed (see `undeleted_values`).
Does not verify: the cause. A truncated log, a disk that lost writes, and an unknown bug look the same.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA, colocated
from checkers.finding import UNEXPLAINED_DIVERGENCE, VISIBLE, Finder, findings, sentence
from checkers.replay.judged import Judged, ReplicaOnlyEvidence
from harness.schedules.catalog import Anomaly


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is where the last committed record lies."""
    rows = _states(judged)
    return rows if judged.replica_only is None else rows.unionByName(_lost(judged.replica_only))


def _states(judged: Judged) -> DataFrame:
    hidden = judged.hidden.selectExpr(*REPLICA, "offset AS true_offset")
    opened = judged.records.where("belief = 'open'").selectExpr(*REPLICA, "offset AS true_offset")
    wrong = (
        judged.differing_keys.where("NOT true_tombstone AND coalesce(here_truth = 'committed', true)")
        .join(hidden, ["true_offset", *REPLICA], "left_anti")
        .join(opened, ["true_offset", *REPLICA], "left_anti")
    )
    return findings(
        wrong,
        UNEXPLAINED_DIVERGENCE,
        offset="true_offset",
        producer_id=None,
        effect=VISIBLE,
        proven=f.expr("NOT true_transactional AND here_offset IS NOT NULL"),
        explanation=sentence(
            "key {key!r}: the last committed record is at offset {true_offset}, this broker's is at "
            "{here_offset:none}, and no evidence explains why"
        ),
        witness="true_offset AS last_committed_at, here_offset AS last_here_at",
    )


def _lost(replica_only: ReplicaOnlyEvidence) -> DataFrame:
    lost = (
        replica_only.undeleted_values.where("older_there IS NOT NULL AND (own_marker OR NOT transactional)")
        .withColumnRenamed("broker", "held_by")
        .withColumnRenamed("removed_by", "broker")
    )
    other = Anomaly.ABORTED_TO_COMMITTED
    return findings(
        colocated(lost),
        UNEXPLAINED_DIVERGENCE,
        candidates=f.expr(f"if(transactional, array('{UNEXPLAINED_DIVERGENCE}', '{other}'), array())"),
        effect=VISIBLE,
        proven=~f.col("transactional"),
        explanation=sentence(
            "key {key!r}: broker {held_by} has a committed value at offset {offset}, this broker has lost that value "
            "and serves the value of offset {older_there}, and no evidence explains why"
        ),
        witness="offset AS last_committed_at, held_by AS held_by_broker, older_there AS last_here_at",
    )


FINDER = Finder(
    name=UNEXPLAINED_DIVERGENCE,
    check=check,
    in_runs=False,
    means="the replicas differ in a way that compaction does not cause",
)
