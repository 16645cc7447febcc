"""All guarantees, in one job: each is small, and a job of its own would cost more than what it computes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from checkers.evidence.tables import colocated
from checkers.guarantees import compaction_lag, control_batches, last_value, offsets, order, tombstones
from checkers.guarantees.watched import watch

if TYPE_CHECKING:
    from checkers.replay.judged import Judged

GUARANTEES = (last_value, order, offsets, tombstones, compaction_lag, control_batches)


def check(judged: Judged) -> DataFrame:
    """Return `told.TOLD` of every guarantee and replica that has anything to compare."""
    watched = watch(judged)
    return colocated(reduce(DataFrame.unionByName, (one.check(watched) for one in GUARANTEES)))
