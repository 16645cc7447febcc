"""Compaction by brokers of Kafka and of Redpanda: a pass, when it is due, and what a walk needs to compare replicas.

In a walk, time stands still: when time passes, all existing timestamps are set to long ago instead. So two replicas
differ in a time only if that time is over for one of them and not for the other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from harness.broker_files.segments.records import MAX_INT64
from harness.models.log import cleaner, redpanda
from harness.models.log.batch import ModelBatch, size_bytes
from harness.models.log.cleaner import Bounds, Cleaning, cleanable_segments, first_dirty, stable_segments
from harness.models.log.invariants import ModelTruth
from harness.models.log.replica import ModelSegment, Replica

RETENTION_MS: Final = 10
NOW_MS: Final = 0
LONG_AGO_MS: Final = NOW_MS - RETENTION_MS
AT_REST: Final = 1.0
"""A ``min.cleanable.dirty.ratio`` that no log exceeds: it also stops compaction that needs no dirty records."""


@dataclass(frozen=True)
class BrokerSystem:
    """Rules of one kind of broker.

    ``clean``: one pass over a replica (replica, settings, time in ms, bounds); returns whether the pass had work.
    ``progress``: a replica's MCCO and MXFO. ``age``: time passes. ``content``: a key, equal for equal replicas.
    ``is_due``: whether a pass begins now (replica, cleaning, topic's numbers, time in ms); ``due_later_ms``: when time
    alone may make a pass due (replica, topic's numbers, time in ms).
    """

    clean: Callable[[Replica, Cleaning, int, Bounds], bool]
    progress: Callable[[Replica], Bounds]
    age: Callable[[Replica], None]
    content: Callable[[Replica], Hashable]
    is_due: Callable[[Replica, Cleaning, Mapping[str, float], int], bool]
    due_later_ms: Callable[[Replica, Mapping[str, float], int], float | None]


def lowered(progress: Bounds, truth: ModelTruth) -> Bounds:
    """Return MCCO and MXFO, each lowered to the last tombstone or marker below it, with which alone it is compared."""
    ends = [record.offset + 1 for record in truth.wrote if record.deletes]
    marker_ends = [txn.marker_offset + 1 for txn in truth.txns if txn.marker_offset is not None]
    return Bounds(
        max((end for end in ends if end <= progress.tombstones), default=0),
        max((end for end in marker_ends if end <= progress.markers), default=0),
    )


def _kafkas_progress(replica: Replica) -> Bounds:
    """Return the cleaner's offset and the last stable offset, by the post's definition; Kafka has no MCCO and MXFO."""
    return Bounds(replica.cleaned_to or 0, replica.last_stable_offset)


def _kafkas_age(replica: Replica) -> None:
    for segment in replica.segments:
        segment.batches = list(map(_of_long_ago, segment.batches))
    replica.producers = {it: replace(entry, timestamp_ms=LONG_AGO_MS) for it, entry in replica.producers.items()}


@lru_cache(maxsize=1 << 16)
def _of_long_ago(batch: ModelBatch) -> ModelBatch:
    horizon_ms = None if batch.delete_horizon_ms is None else NOW_MS
    records = tuple(replace(record, timestamp_ms=LONG_AGO_MS) for record in batch.records)
    return replace(batch, records=records, max_timestamp_ms=LONG_AGO_MS, delete_horizon_ms=horizon_ms)


def _kafkas_content(replica: Replica) -> Hashable:
    producers = [
        (it.producer_id, it.producer_epoch, it.last_offset, it.current_txn_first_offset, it.timestamp_ms)
        for it in replica.producers.values()
    ]
    return _content(replica, producers, _with_times)


def _content(replica: Replica, producers: Iterable[Hashable], batch_key: Callable[[ModelBatch], Hashable]) -> Hashable:
    segments = tuple(
        [(it.base_offset, it.clean_since_ms, *map(batch_key, it.batches), *it.aborted) for it in replica.segments]
    )
    return replica.high_watermark, replica.cleaned_to, tuple(replica.unreplicated), tuple(producers), segments


@lru_cache(maxsize=1 << 16)
def _with_times(batch: ModelBatch) -> Hashable:
    is_due = None if batch.delete_horizon_ms is None else batch.delete_horizon_ms <= NOW_MS
    return *_without_times(batch), is_due, batch.max_timestamp_ms if batch.producer_id >= 0 else None


@lru_cache(maxsize=1 << 16)
def _without_times(batch: ModelBatch) -> tuple[Hashable, ...]:
    records = tuple((record.key, record.value, record.attributes) for record in batch.records)
    return batch.base_offset, records, batch.producer_id, batch.producer_epoch, batch.transactional, batch.control


def _redpandas_age(replica: Replica) -> None:
    for segment in replica.segments:
        if segment.clean_since_ms is not None:
            segment.clean_since_ms = LONG_AGO_MS


def _redpandas_content(replica: Replica) -> Hashable:
    """Return a key without ages of producers and records: a pass uses only the time since when a segment is clean."""
    is_open = [(it.producer_id, it.current_txn_first_offset) for it in replica.producers.values()]
    return _content(replica, is_open, _without_times)


def is_due(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Return whether a pass begins now (``LogCleanerManager.grabFilthiestCompactedLog``).

    The dirty bytes are more than ``min.cleanable.dirty.ratio`` of clean and dirty bytes, or have been dirty for longer
    than ``max.compaction.lag.ms``. A segment with the first dirty offset inside is clean and dirty (``LogToClean``).
    """
    cleanable = replica.segments[: cleanable_segments(replica, cleaning, now_ms)]
    dirty = _dirty_segments(replica, cleanable)
    if not dirty:
        return False
    clean = [segment for segment in cleanable if segment.base_offset < first_dirty(replica)]
    dirty_bytes, clean_bytes = (sum(size_bytes(segment.batches) for segment in some) for some in (dirty, clean))
    is_overdue = now_ms - topic["max.compaction.lag.ms"] > _dirty_since_ms(dirty)
    return is_overdue or dirty_bytes / (clean_bytes + dirty_bytes) > topic["min.cleanable.dirty.ratio"]


def due_later_ms(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when time alone may make a pass due, at the end of a compaction lag; None if it never does."""
    dirty = _dirty_segments(replica, replica.segments[:-1])
    if not dirty:
        return None
    youngest_ms = max(batch.max_timestamp_ms for batch in dirty[0].batches)
    moments = (
        youngest_ms + topic["min.compaction.lag.ms"] + 1,
        _dirty_since_ms(dirty) + topic["max.compaction.lag.ms"] + 1,
    )
    return min((moment for moment in moments if now_ms < moment < MAX_INT64), default=None)


def _dirty_segments(replica: Replica, segments: Iterable[ModelSegment]) -> list[ModelSegment]:
    start = cleaner.first_dirty_segment(replica)
    return [segment for segment in segments if segment.base_offset >= start and segment.batches]


def _dirty_since_ms(dirty: Iterable[ModelSegment]) -> int:
    return min(segment.batches[0].max_timestamp_ms for segment in dirty)


def _is_due_in_redpanda(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Return whether a segment is closed: every check begins a pass (``log_compaction_interval_ms``)."""
    return topic["min.cleanable.dirty.ratio"] < AT_REST and stable_segments(replica, cleaning, now_ms) > 0


def _due_later_in_redpanda(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when the next segment will have been clean for the retention."""
    since_ms = [segment.clean_since_ms for segment in replica.segments if segment.clean_since_ms is not None]
    moments = (at_ms + topic["delete.retention.ms"] for at_ms in since_ms)
    return min((moment for moment in moments if moment > now_ms), default=None)


KAFKA: Final = BrokerSystem(cleaner.clean, _kafkas_progress, _kafkas_age, _kafkas_content, is_due, due_later_ms)


def redpanda_without(without: frozenset[str]) -> BrokerSystem:
    """Return Redpanda with some of `harness.models.log.redpanda.RULES` left out."""
    clean, progress = partial(redpanda.clean, without=without), partial(redpanda.progress, without=without)
    return BrokerSystem(
        clean, progress, _redpandas_age, _redpandas_content, _is_due_in_redpanda, _due_later_in_redpanda
    )


REDPANDA: Final = redpanda_without(frozenset())
