"""One pass of compaction: index dirty ranges backwards, rewrite everything below them forwards (the post).

A pass reads metadata once and then only immutable objects, so its result depends only on when it began. Its objects are
not part of the log until the metastore has accepted its update.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.models.cloud_topics.keymap import DEFAULT_MAP_BYTES, KeyOffsetMap
from harness.models.cloud_topics.metastore import Bookkeeping, L1Object, Update
from harness.models.cloud_topics.ranges import Range, Ranges, gaps, holds, overlap, union
from harness.models.cloud_topics.rules import (
    ALL_ON,
    BACKWARD_SCAN,
    CLEAN_TOMBSTONES,
    CLEANED_RANGES,
    TOMBSTONE_WAIT,
    WHOLE_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.broker_files.segments.records import Record
    from harness.models.cloud_topics.metastore import Log
    from harness.models.log.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of topic and broker. Neighbouring objects are merged until an object has ``object_records`` records."""

    delete_retention_ms: int = 86_400_000
    map_bytes: int = DEFAULT_MAP_BYTES
    object_records: int = 1000
    min_cleanable_dirty_ratio: float = 0.5
    max_compaction_lag_ms: int = 2**63 - 1


def dirty(log: Log) -> Ranges:
    """Return the offsets whose records are not indexed yet: all that are not in a cleaned range (the post)."""
    return gaps(log.cleaned, log.end_offset)


def removable(log: Log, *, now_ms: int, delete_retention_ms: int, without: frozenset[str] = ALL_ON) -> Ranges:
    """Return the cleaned ranges with removable tombstones: delete.retention.ms has passed since they were cleaned.

    Such a tombstone has no value left to delete, as no record of its key is below a cleaned range; and a reader of an
    earlier value began before the range was cleaned (see ``TombstoneRange`` for what the post says of this).
    """
    wait_ms = 0 if TOMBSTONE_WAIT in without else delete_retention_ms
    return tuple((entry.first, entry.end) for entry in log.tombstones if entry.cleaned_at_ms + wait_ms <= now_ms)


def begin_pass(log: Log, settings: Settings, *, now_ms: int, without: frozenset[str] = ALL_ON) -> Update | None:
    """Run one pass over a log as it is now; None if it has no dirty offsets and no removable tombstone.

    Only indexed offsets become clean, down to the key that did not fit. A record there is the last of its key in all
    dirty ranges, and once everything below has been rewritten, the only one of its key at or below its offset.
    """
    unclean = dirty(log)
    expired = removable(log, now_ms=now_ms, delete_retention_ms=settings.delete_retention_ms, without=without)
    if not unclean and not expired:
        return None
    latest = KeyOffsetMap(settings.map_bytes, without)
    indexed = _scan(log.objects, unclean, latest, backwards=BACKWARD_SCAN not in without)
    cleaned = unclean if CLEANED_RANGES in without else indexed

    def is_expired(record: Record) -> bool:
        if CLEAN_TOMBSTONES in without:
            return record.timestamp_ms + settings.delete_retention_ms <= now_ms
        return holds(expired, record.offset)

    def stays(record: Record) -> bool:
        if record.key is None or record.offset < latest.latest(record.key):
            return False
        return record.value is not None or not is_expired(record)

    rewriting = _Rewriting(settings.object_records, stays)
    touched = union((*indexed, *expired))
    if touched and WHOLE_PREFIX not in without:
        touched = ((0, touched[-1][1]),)
    for piece in log.objects:
        if overlap(touched, piece.base_offset, piece.end_offset):
            rewriting.take(piece)
    objects = rewriting.done()
    bookkeeping = Bookkeeping(cleaned, _with_tombstones(objects, cleaned), expired, now_ms, log.end_offset)
    return Update(log.compaction_epoch, objects, bookkeeping)


def _scan(objects: Sequence[L1Object], unclean: Ranges, latest: KeyOffsetMap, *, backwards: bool) -> Ranges:
    """Index dirty ranges until a key does not fit, and return the offsets that were indexed.

    Backwards from the end of the last range, a key's first indexed offset is its latest (the post). Forwards, as
    Kafka's cleaner does, only where the rule is off.
    """
    step = -1 if backwards else 1
    indexed: list[Range] = []
    for first, end in unclean[::step]:
        for piece in objects[::step]:
            if not overlap(((first, end),), piece.base_offset, piece.end_offset):
                continue
            for record in [*piece.records()][::step]:
                if first <= record.offset < end and not latest.note(_key(record), record.offset):
                    return union((*indexed, (record.offset + 1, end) if backwards else (first, record.offset)))
        indexed.append((first, end))
    return union(indexed)


def _key(record: Record) -> bytes:
    if record.key is None:
        raise ValueError(f"the record at offset {record.offset} has no key")
    return record.key


def _with_tombstones(objects: Sequence[L1Object], cleaned: Ranges) -> Ranges:
    offsets = [record.offset for piece in objects for record in piece.records() if record.value is None]
    return tuple(area for area in cleaned if any(area[0] <= offset < area[1] for offset in offsets))


@dataclass(slots=True)
class _Rewriting:
    """The forward part: copies the records that stay into new objects, which cover the offsets of the old ones."""

    object_records: int
    stays: Callable[[Record], bool]
    finished: list[L1Object] = field(default_factory=list)
    base: int | None = None
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    records: int = 0

    def take(self, piece: L1Object) -> None:
        if self.base is not None and piece.base_offset != self.end:
            self._finish()
        if self.base is None:
            self.base = piece.base_offset
        self.end = piece.end_offset
        for batch in piece.batches:
            # A batch without records is left out: L0 has the producers' state (the post).
            if records := tuple(record for record in batch.records if self.stays(record)):
                self.batches.append(batch.keeping(records))
                self.records += len(records)
        if self.records >= self.object_records:
            self._finish()

    def done(self) -> tuple[L1Object, ...]:
        self._finish()
        return tuple(self.finished)

    def _finish(self) -> None:
        if self.base is not None:
            self.finished.append(L1Object(self.base, self.end, tuple(self.batches)))
        self.base, self.batches, self.records = None, [], 0
