"""Which log is compacted next: each node's scheduler keeps a queue of logs, its workers poll it when they are idle."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from models.batch import encode
from models.cloud_topics.compaction import dirty, removable
from models.cloud_topics.ranges import overlap
from models.cloud_topics.rules import ALL_ON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from models.batch import Batch
    from models.cloud_topics.compaction import Settings
    from models.cloud_topics.metastore import Log


@dataclass(frozen=True, slots=True)
class Need:
    """Why a log is eligible. ``lag_ms``: the age of its oldest dirty record."""

    name: str
    dirty_ratio: float
    lag_ms: int
    is_overdue: bool


def need(name: str, log: Log, settings: Settings, *, now_ms: int, without: frozenset[str] = ALL_ON) -> Need | None:
    """Return why a log is eligible now; None where it is not.

    The post has the dirty ratio (dirty bytes of all bytes, against min.cleanable.dirty.ratio) and the time since data
    became eligible (max.compaction.lag.ms). As in Kafka, the ratio must be exceeded, and data are eligible from
    when they were written. A batch with a dirty record counts as dirty as a whole. Decided here: a log with
    tombstones that may go is eligible too; otherwise those of a log that nobody writes to any more would stay.
    """
    unclean = dirty(log)
    all_bytes = dirty_bytes = lag_ms = 0
    for piece in log.objects:
        for batch in piece.batches:
            size_bytes = _size_bytes(batch)
            all_bytes += size_bytes
            if overlap(unclean, batch.base_offset, batch.last_offset + 1):
                dirty_bytes += size_bytes
                lag_ms = max(lag_ms, now_ms - min(record.timestamp_ms for record in batch.records))
    ratio = dirty_bytes / all_bytes if all_bytes else 0.0
    is_overdue = dirty_bytes > 0 and lag_ms >= settings.max_compaction_lag_ms
    retention_ms = settings.delete_retention_ms
    has_expired = removable(log, now_ms=now_ms, delete_retention_ms=retention_ms, without=without)
    if ratio > settings.min_cleanable_dirty_ratio or is_overdue or has_expired:
        return Need(name, ratio, lag_ms, is_overdue)
    return None


def queue(needs: Iterable[Need]) -> list[Need]:
    """Return logs in the order of their turns.

    The post names what the order is based on, not how the two are weighed. Decided here: what has met
    max.compaction.lag.ms goes first, as that is a promise; then the highest dirty ratio, as in Kafka; then lag.
    """
    return sorted(needs, key=lambda one: (not one.is_overdue, -one.dirty_ratio, -one.lag_ms, one.name))


@dataclass(slots=True)
class Scheduler:
    """One node's scheduler. It knows what its own workers are at, and nothing of other nodes' (the post).

    Two nodes may so compact one log at once: the metastore accepts the first.
    """

    running: set[str] = field(default_factory=set)

    def poll(self, needs: Iterable[Need]) -> str | None:
        """Hand the log whose turn it is to an idle worker; None where there is none that is not being compacted."""
        for one in queue(needs):
            if one.name not in self.running:
                self.running.add(one.name)
                return one.name
        return None

    def finished(self, name: str) -> None:
        """Take a log back from a worker, whatever came of it."""
        self.running.discard(name)


@lru_cache(maxsize=1 << 16)
def _size_bytes(batch: Batch) -> int:
    return len(encode(batch))
