"""tombstones: a delete can be read for ``delete.retention.ms`` at least after it was written.

Verifies: of each tombstone that the observer saw go from a replica, that it was not younger than the topic's
``delete.retention.ms`` then. A reader that comes from the start and is through within that time meets it. The clock of
the retention starts at the first cleaning, which is later than the writing, so that a replica that keeps the promise
is never below. Violated only where it is proven (see `watched`): the tombstone was committed, and of its key nothing
was written later that this replica can have known. A newer record lets it go at once, and legally; so where any offset
after it, up to the log's end at that time, is not known to anybody, nothing is said.

Does not verify: tombstones that went unseen: from a broker that was down, between two looks; those of clients that are
not the run's. That the tombstone goes at all: nothing promises when. What a replica never had: a log that was copied
from another one holds what that one had left (tombstone-divergence is of that).

Source: Kafka's documentation, "What guarantees does log compaction provide?", 4, and ``delete.retention.ms``; for the
clock `Cleaner.shouldRetainRecord` and KIP-534.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.finding import printable
from checkers.guarantees.told import told
from checkers.replay.batch_outcomes import COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.guarantees.watched import Watched

NAME = "tombstones"


def check(watched: Watched) -> DataFrame:
    """Return `TOLD`."""
    rows = watched.removals.where(
        "tombstone AND last_of_key = offset AND NOT goes_on AND log_end <= known_to AND delete_retention_ms IS NOT NULL"
    ).where(f.col("truth") == COMMITTED)
    return told(
        rows,
        NAME,
        broken="age_ms < delete_retention_ms",
        explanation=f.format_string(
            "the delete of key %s at offset %d was gone at most %d ms after it was written, and delete.retention.ms is "
            "%d",
            printable("key"),
            "offset",
            "age_ms",
            "delete_retention_ms",
        ),
        witness={name: f.col(name) for name in ("age_ms", "delete_retention_ms", "time_ms")},
    )
