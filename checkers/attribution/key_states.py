"""The state that each replica serves for a key that replicas disagree about, and its belief about the disputed record.

`blame` decides from these states which replica is wrong. A replica without a row has no record of the key from its log
start to the bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA, colocated, place_of
from checkers.replay.batch_outcomes import COMMITTED, OPEN
from checkers.replay.judged import Judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def disputed_records(findings: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return run, topic, partition, key, offset of each disputed record of these rows of `finding.findings`.

    A finding disputes the record at its offset and, where a tombstone is missing, the tombstone.
    """
    disputed = set()
    for row in findings:
        if row["key"] is not None:
            place = (*place_of(row), bytes(row["key"]))
            deleted_at = json.loads(row["witness"]).get("deleted_at")
            disputed |= {(*place, offset) for offset in (row["offset"], deleted_at) if offset is not None}
    return sorted(disputed)


def key_states(judged: Judged, disputed: list[tuple[Any, ...]]) -> DataFrame:
    """Return REPLICA, key, ``disputed`` (an offset), ``last``, ``at``, ``open_from`` of every replica with the key.

    ``last``: the last record of the key that the replica believes committed (fields of `blame.LastRecord`). ``at``: its
    belief about the disputed record, null where it has no such record (fields of `blame.DisputedRecord`).
    ``open_from``: its first record of the key in an open transaction.
    """
    schema = "run string, topic string, partition int, key binary, disputed long"
    records = judged.records.sparkSession.createDataFrame(disputed, schema)
    last = f.struct("offset", "tombstone", "leader_epoch")
    at = f.struct("belief", "tombstone", "transactional", "leader_epoch", "decided_in_leader_epoch")
    return (
        colocated(judged.records)
        .join(colocated(records), ["key", *PARTITION])
        .groupBy("key", "disputed", *REPLICA)
        .agg(
            f.max(f.when(f.col("belief") == COMMITTED, last)).alias("last"),
            f.first(f.when(f.col("offset") == f.col("disputed"), at), ignorenulls=True).alias("at"),
            f.min(f.when(f.col("belief") == OPEN, f.col("offset"))).alias("open_from"),
        )
    )
