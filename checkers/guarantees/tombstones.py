"""tombstones: a tombstone can be read for at least ``delete.retention.ms`` after it was written.

Verifies: the age of every tombstone that the observer saw removed from a replica, against the topic's
``delete.retention.ms``. A reader that reads the log from its start within that time receives the tombstone. The
retention begins with the first cleaning, after the write, so that a correct replica never removes a tombstone earlier.
A violation is reported only where it is proven (see `removals`): the tombstone was committed, and this replica cannot
have had a later record of its key, because of which compaction removes a tombstone at once. So every offset from the
tombstone to the log end at that time must be known.

Does not verify: removals that the observer did not see, from a broker that was down or between two observations;
tombstones of clients outside the run; that a tombstone is ever removed, which nothing guarantees; tombstones that a
replica never had, as it copied a cleaned log (see tombstone-divergence).

Source: Kafka's documentation, "What guarantees does log compaction provide?", 4, and ``delete.retention.ms``; for the
clock `Cleaner.shouldRetainRecord` and KIP-534.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.finding import printable, results, sentence
from checkers.replay.batch_outcomes import COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.removals import ObservedRemovals

NAME = "tombstones"


def check(observed: ObservedRemovals) -> DataFrame:
    """Return `checkers.finding.results`."""
    rows = observed.removals.where(
        "tombstone AND last_of_key = offset AND NOT goes_on AND log_end <= known_to AND delete_retention_ms IS NOT NULL"
    ).where(f.col("truth") == COMMITTED)
    return results(
        rows,
        NAME,
        violation="age_ms < delete_retention_ms",
        explanation=sentence(
            "the delete of key {key} at offset {offset} was removed at most {age_ms} ms after it was written, and "
            "delete.retention.ms is {delete_retention_ms}",
            key=printable("key"),
        ),
        witness={name: f.col(name) for name in ("age_ms", "delete_retention_ms", "time_ms")},
    )
