"""Which log is compacted next: each node's scheduler keeps a queue of logs, its workers poll it when they are idle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.models.cloud_topics.compaction import dirty, removable
from harness.models.cloud_topics.ranges import overlap
from harness.models.cloud_topics.rules import ALL_ON
from harness.models.log.batch import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.models.cloud_topics.compaction import Settings
    from harness.models.cloud_topics.metastore import Log


@dataclass(frozen=True, slots=True)
class Need:
    """The reason why a log is eligible. ``lag_ms``: the age of its oldest dirty record."""

    name: str
    dirty_ratio: float
    lag_ms: int
    is_overdue: bool


def need(name: str, log: Log, settings: Settings, *, now_ms: int, without: frozenset[str] = ALL_ON) -> Need | None:
    """Return why a log is eligible now; None if it is not.

    The post names the dirty ratio (dirty bytes of all bytes, against min.cleanable.dirty.ratio) and the time since data
    became eligible (max.compaction.lag.ms). As in Kafka, the ratio must be exceeded, and data are eligible from
    when they were written. A batch with a dirty record counts as dirty as a whole. Decided here: a log with
    removable tombstones is eligible too; otherwise they would stay in a log without new records.
    """
    unclean = dirty(log)
    all_bytes = dirty_bytes = lag_ms = 0
    for piece in log.objects:
        for batch in piece.batches:
            batch_bytes = size_bytes([batch])
            all_bytes += batch_bytes
            if overlap(unclean, batch.base_offset, batch.last_offset + 1):
                dirty_bytes += batch_bytes
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

    The post names both criteria, not how they are weighed. Decided here: logs that have reached
    max.compaction.lag.ms come first, as that setting is a guarantee; then the highest dirty ratio, as in Kafka; then
    the lag.
    """
    return sorted(needs, key=lambda one: (not one.is_overdue, -one.dirty_ratio, -one.lag_ms, one.name))


@dataclass(slots=True)
class Scheduler:
    """One node's scheduler. It knows the passes of its own workers, and nothing of other nodes (the post).

    So two nodes may compact one log at once: the metastore accepts the first update.
    """

    running: set[str] = field(default_factory=set)

    def poll(self, needs: Iterable[Need]) -> str | None:
        """Give an idle worker the next log; None if no eligible log is free."""
        for one in queue(needs):
            if one.name not in self.running:
                self.running.add(one.name)
                return one.name
        return None

    def finished(self, name: str) -> None:
        """Free a log after a worker's pass, whatever its result."""
        self.running.discard(name)
