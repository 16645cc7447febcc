"""What each replica makes of each transactional batch: for people to look at, beside the findings.

Verifies nothing. Of batches that compaction has removed there is no row, and none of what is in no transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from checkers.replay.judged import Judged


def tell(judged: Judged) -> DataFrame:
    """Return REPLICA, ``base_offset``, ``last_offset``, ``outcome`` and ``decided_by``.

    ``outcome``: committed, aborted or open; ``decided_by``: the offset of the marker, null where there is none.
    """
    return judged.beliefs.where("transactional").select(
        *REPLICA, "base_offset", "last_offset", f.col("belief").alias("outcome"), "decided_by"
    )
