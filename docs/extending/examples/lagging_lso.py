"""lagging-lso: a replica with the whole log whose last stable offset is behind the offset of another replica.

Verifies: the last stable offsets that replicas reported at the end of the run, of each partition.

Does not verify: why. A transaction that is open on one replica alone is `stuck_lso`; a follower that was just asked too
early looks the same here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated
from checkers.finding import VISIBLE, Finder, findings
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


def check(judged: Judged) -> DataFrame:
    """Return findings; the offset is the replica's last stable offset."""
    replicas = judged.replicas.select(*REPLICA, "log_end", "last_stable_offset")
    furthest = replicas.groupBy(*PARTITION).agg(f.max("last_stable_offset").alias("furthest"))
    behind = colocated(replicas.join(furthest, PARTITION)).where(
        "last_stable_offset < furthest AND log_end >= furthest"
    )
    return findings(
        behind,
        Anomaly.LAGGING_LSO,
        effect=VISIBLE,
        explanation=f.format_string(
            "broker %d has its last stable offset at %d, another replica at %d",
            "broker", "last_stable_offset", "furthest",
        ),
        witness="last_stable_offset, furthest",
        offset="last_stable_offset",
        key=None,
        producer_id=None,
    )  # fmt: skip


FINDER = Finder(
    name=Anomaly.LAGGING_LSO,
    check=check,
    means="read_committed consumers of broker {broker} get fewer records than consumers of another replica",
)
