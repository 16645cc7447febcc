"""min-compaction-lag: nothing younger than ``min.compaction.lag.ms`` is compacted.

Verifies: of everything that the observer saw go from a replica (values, tombstones, markers, emptied batches), that it
was not younger than the topic's ``min.compaction.lag.ms`` then. It is proven as `watched` says.

Does not verify: what went between two looks, or from a broker that was down; what nobody knows the writing of; that a
batch is not emptied too early, which is seen when the rest of it goes. With the default, 0, nothing is promised.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 1, and ``min.compaction.lag.ms``;
`LogCleanerManager.cleanableOffsets`: nothing is cleaned from the first segment on that holds a younger record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.guarantees.told import told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "min-compaction-lag"


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`."""
    return told(
        watched.removals.where("min_compaction_lag_ms > 0"),
        NAME,
        broken="age_ms < min_compaction_lag_ms",
        explanation=f.format_string(
            "the %s at offset %d was gone at most %d ms after it was written, and min.compaction.lag.ms is %d",
            "kind",
            "offset",
            "age_ms",
            "min_compaction_lag_ms",
        ),
        witness={name: f.col(name) for name in ("age_ms", "min_compaction_lag_ms", "time_ms")},
    )
