"""The guarantees of compaction, each checked independently.

Kafka documents the guarantees ("What guarantees does log compaction provide?"), except for the treatment of control
batches by its cleaner. Each checker reports a violation only where the evidence proves it.
"""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import DataFrame

from checkers.evidence.tables import colocated
from checkers.guarantees import records, removals
from checkers.replay.judged import Judged

LAST_VALUE = "last-value"
GUARANTEES = {
    LAST_VALUE: records.check_last_value,
    "order": records.check_order,
    "offsets": records.check_offsets,
    "tombstones": removals.check_tombstones,
    "min-compaction-lag": removals.check_compaction_lag,
    "control-batches": removals.check_control_batches,
}
"""Functions that return `checkers.finding.results`, by guarantee."""


def check(judged: Judged, names: Collection[str] = tuple(GUARANTEES)) -> DataFrame:
    """Return `results` of these guarantees for every replica with rows to compare, in one job: jobs start slowly."""
    observed = removals.observed_removals(judged)
    return colocated(reduce(DataFrame.unionByName, (GUARANTEES[name](observed, name) for name in names)))
