"""The guarantees of compaction, each checked independently.

Kafka documents the guarantees ("What guarantees does log compaction provide?"), except for the treatment of control
batches by its cleaner. Each checker reports a violation only where the evidence proves it. `removals` has the
guarantees about the age of removed records; every other guarantee has its own module.
"""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import DataFrame

from checkers.evidence.tables import colocated
from checkers.guarantees import control_batches, last_value, offsets, order
from checkers.guarantees.removals import check_compaction_lag, check_tombstones, observed_removals
from checkers.replay.judged import Judged

LAST_VALUE = "last-value"
GUARANTEES = {
    LAST_VALUE: last_value.check,
    "order": order.check,
    "offsets": offsets.check,
    "tombstones": check_tombstones,
    "min-compaction-lag": check_compaction_lag,
    "control-batches": control_batches.check,
}
"""Functions that return `checkers.finding.results`, by guarantee."""


def check(judged: Judged, names: Collection[str] = tuple(GUARANTEES)) -> DataFrame:
    """Return `checkers.finding.results` of these guarantees, for every replica with rows to compare.

    All are computed in one job: starting a job for each would take longer than its computation.
    """
    observed = observed_removals(judged)
    return colocated(reduce(DataFrame.unionByName, (GUARANTEES[name](observed, name) for name in names)))
