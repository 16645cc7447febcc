"""min-compaction-lag: no record younger than ``min.compaction.lag.ms`` is compacted.

Verifies: the age of every entry (value, tombstone, marker, emptied batch) that the observer saw removed from a replica,
against the topic's ``min.compaction.lag.ms``. `removals` describes the proof of a removal and of an age.

Does not verify: removals between two observations, or from a broker that was down; entries whose time of writing is
unknown; a batch that is emptied too early, until the rest of the batch is removed. The default, 0, guarantees nothing.

Source: Kafka's documentation, "What guarantees does log compaction provide?", 1, and ``min.compaction.lag.ms``;
`LogCleanerManager.cleanableOffsets`: nothing is cleaned from the first segment with a younger record on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.finding import results, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.removals import ObservedRemovals

NAME = "min-compaction-lag"


def check(observed: ObservedRemovals) -> DataFrame:
    """Return `checkers.finding.results`."""
    return results(
        observed.removals.where("min_compaction_lag_ms > 0"),
        NAME,
        violation="age_ms < min_compaction_lag_ms",
        explanation=sentence(
            "the {kind} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "min.compaction.lag.ms is {min_compaction_lag_ms}"
        ),
        witness={name: f.col(name) for name in ("age_ms", "min_compaction_lag_ms", "time_ms")},
    )
