"""All guarantees, in one job: starting a job for each would take longer than its computation."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from checkers.evidence.tables import colocated
from checkers.guarantees import compaction_lag, control_batches, last_value, offsets, order, tombstones
from checkers.guarantees.removals import observed_removals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from checkers.replay.judged import Judged

GUARANTEES = (last_value, order, offsets, tombstones, compaction_lag, control_batches)


def check(judged: Judged, guarantees: Sequence[ModuleType] = GUARANTEES) -> DataFrame:
    """Return `checkers.finding.results` of each of these guarantees for every replica with rows to compare."""
    observed = observed_removals(judged)
    return colocated(reduce(DataFrame.unionByName, (guarantee.check(observed) for guarantee in guarantees)))
