"""When a broker's cleaner begins a pass over a replica, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.models.cluster.settings import NEVER_MS
from harness.models.log.batch import size_bytes
from harness.models.log.cleaner import Cleaning, cleanable_segments, first_dirty, stable_segments
from harness.models.walk import systems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.models.log.replica import Replica, Segment
    from harness.models.log.version_rules import VersionRules
    from harness.models.walk.systems import System

AT_REST: Final = 1.0
"""A ``min.cleanable.dirty.ratio`` that no log exceeds: it also stops compaction that needs no dirty records."""


@dataclass(frozen=True)
class Compactor:
    """How a kind of broker cleans a replica.

    ``system``: its passes. ``is_due``: whether a pass begins now (replica, cleaning,
    topic's numbers, time in ms); ``due_later_ms``: when time alone may make one due (replica, topic, time).
    """

    system: System
    is_due: Callable[[Replica, Cleaning, Mapping[str, float], int], bool]
    due_later_ms: Callable[[Replica, Mapping[str, float], int], float | None]


def cleaning_of(topic: Mapping[str, float], producer_expiration_ms: float, version: VersionRules) -> Cleaning:
    """Return the settings of a pass."""
    return Cleaning(
        delete_retention_ms=int(topic["delete.retention.ms"]),
        producer_expiration_ms=int(producer_expiration_ms),
        min_compaction_lag_ms=int(topic["min.compaction.lag.ms"]),
        last_of_pass_stays=version.last_of_pass_stays,
    )


def is_due(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Whether a pass begins now (``LogCleanerManager.grabFilthiestCompactedLog``).

    The dirty bytes are more than ``min.cleanable.dirty.ratio`` of the cleanable bytes, or have been dirty for longer
    than ``max.compaction.lag.ms``.
    """
    cleanable = replica.segments[: cleanable_segments(replica, cleaning, now_ms)]
    dirty = dirty_segments(replica, cleanable)
    dirty_bytes = sum(size_bytes(segment.batches) for segment in dirty)
    if not dirty_bytes:
        return False
    whole_bytes = sum(size_bytes(segment.batches) for segment in cleanable)
    if dirty_bytes / whole_bytes > topic["min.cleanable.dirty.ratio"]:
        return True
    return now_ms - topic["max.compaction.lag.ms"] > _since_ms(dirty)


def due_later_ms(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when time alone may make a pass due, at the end of a compaction lag; None if it never does."""
    dirty = [one for one in dirty_segments(replica, replica.segments[:-1]) if one.batches]
    if not dirty:
        return None
    lags_ms = (topic["min.compaction.lag.ms"], topic["max.compaction.lag.ms"])
    youngest_ms = max(batch.max_timestamp_ms for batch in dirty[0].batches)
    moments = (youngest_ms + lags_ms[0] + 1, _since_ms(dirty) + lags_ms[1] + 1)
    return min((moment for moment in moments if now_ms < moment < NEVER_MS), default=None)


def dirty_segments(replica: Replica, among: list[Segment]) -> list[Segment]:
    """Return the segments that were written since the last pass."""
    start = first_dirty(replica)
    return [segment for segment in among if segment.base_offset >= start]


def _since_ms(dirty: list[Segment]) -> int:
    """Return since when there are dirty records: the smallest timestamp of the segments' first batches."""
    return min(segment.batches[0].max_timestamp_ms for segment in dirty if segment.batches)


def _is_due_in_redpanda(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Whether there is a closed segment: every check begins a pass (``log_compaction_interval_ms``)."""
    return topic["min.cleanable.dirty.ratio"] < AT_REST and stable_segments(replica, cleaning, now_ms) > 0


def _due_later_in_redpanda(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when the next segment will have been clean for the retention."""
    since_ms = [one.clean_since_ms for one in replica.segments if one.clean_since_ms is not None]
    moments = (at_ms + topic["delete.retention.ms"] for at_ms in since_ms)
    return min((moment for moment in moments if moment > now_ms), default=None)


KAFKA: Final = Compactor(systems.KAFKA, is_due, due_later_ms)
REDPANDA: Final = Compactor(systems.REDPANDA, _is_due_in_redpanda, _due_later_in_redpanda)
