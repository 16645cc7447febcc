"""tombstones: a tombstone can be read for at least ``delete.retention.ms`` after it was written.

Verifies: every tombstone that the observer saw removed from a replica against the topic's ``delete.retention.ms``: the
tombstone was not younger. A reader that starts at the log start and is through within that time meets the tombstone.
The clock of the retention starts at the first cleaning, which is later than the writing, so that a correct replica is
never below. A violation is reported only where it is proven (see `removals`): the tombstone was committed, and no later
record of its key was written that this replica can have had. A newer record lets compaction remove the tombstone at
once, and legally; so there is no verdict where any offset after the tombstone, up to the log end of that time, is
unknown.

Does not verify: removals that the observer did not see, from a broker that was down or between two observations;
tombstones of clients outside the run; that a tombstone is ever removed, which nothing guarantees; tombstones that a
replica never had: a log that was copied from another replica has the records that were left there (see
tombstone-divergence).

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
