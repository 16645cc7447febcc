"""The outcome that each replica gives to each transactional batch: for people to read, beside the findings.

Verifies nothing. There is no row for a batch that compaction has removed, nor for a non-transactional batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


def transaction_outcomes(judged: Judged) -> DataFrame:
    """Return REPLICA, ``base_offset``, ``last_offset``, ``outcome`` and ``decided_by``.

    ``outcome``: committed, aborted or open; ``decided_by``: the offset of the marker, null where there is none.
    """
    return judged.beliefs.where("transactional").select(
        *REPLICA, "base_offset", "last_offset", f.col("belief").alias("outcome"), "decided_by"
    )
