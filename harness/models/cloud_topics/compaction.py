"""One pass of compaction: index dirty ranges backwards, rewrite everything below them forwards (the post).

A pass reads metadata once and then only immutable objects, so its result depends only on when it began. Its objects are
not part of the log until the metastore has accepted its update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from harness.broker_files.segments.records import Record
from harness.models.cloud_topics.metastore import (
    Bookkeeping,
    L1Object,
    Log,
    Range,
    Ranges,
    Update,
    gaps,
    holds,
    overlap,
    union,
)

ENTRY_BYTES: Final = 32 + 8
"""A SHA-256 hash and a 64-bit offset (the post)."""
DEFAULT_MAP_BYTES: Final = 128 * 1024 * 1024
"""The default allocation (the post): 3 355 443 keys."""


class KeyOffsetMap:
    """Offsets by hash of key, up to a number of entries that follows from its memory.

    Entries have one size, whatever the size of the keys. The post relies on SHA-256 being collision resistant: equal
    hashes count as equal keys, and no key is kept.
    """

    def __init__(self, map_bytes: int = DEFAULT_MAP_BYTES, without: frozenset[str] = frozenset()) -> None:
        self.most_entries = map_bytes // ENTRY_BYTES
        if self.most_entries < 1:
            raise ValueError(f"a map of {map_bytes} bytes has no room for an entry of {ENTRY_BYTES}")
        self._offsets: dict[bytes, int] = {}
        self._has_one_hash = "collision-resistance" in without

    def __len__(self) -> int:
        return len(self._offsets)

    def _hash(self, key: bytes) -> bytes:
        return b"" if self._has_one_hash else sha256(key).digest()

    def note(self, key: bytes, offset: int) -> bool:
        """Raise a key's offset to this one; return False, without a change, if the key is new and does not fit.

        A full map still takes offsets of keys that it has. In the post, the scan stops at a completely full map;
        continuing until the first key that does not fit cleans more with the same memory, and needs no more entries.
        """
        entry = self._hash(key)
        if entry not in self._offsets and len(self._offsets) >= self.most_entries:
            return False
        self._offsets[entry] = max(offset, self._offsets.get(entry, offset))
        return True

    def latest(self, key: bytes) -> int:
        """Return the highest offset of a key, -1 if the map does not have it."""
        return self._offsets.get(self._hash(key), -1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of topic and broker. Neighbouring objects are merged until an object has ``object_records`` records.

    ``without``: names of `harness.models.cloud_topics.rules.RULES` that are left out.
    """

    delete_retention_ms: int = 86_400_000
    map_bytes: int = DEFAULT_MAP_BYTES
    object_records: int = 1000
    min_cleanable_dirty_ratio: float = 0.5
    max_compaction_lag_ms: int = 2**63 - 1
    without: frozenset[str] = frozenset()


def dirty(log: Log) -> Ranges:
    """Return the offsets whose records are not indexed yet: all that are not in a cleaned range (the post)."""
    return gaps(log.cleaned, log.end_offset)


def removable(log: Log, settings: Settings, *, now_ms: int) -> Ranges:
    """Return the cleaned ranges with removable tombstones: delete.retention.ms has passed since they were cleaned.

    Such a tombstone has no value left to delete, as no record of its key is below a cleaned range; and a reader of an
    earlier value began before the range was cleaned (the post says less, see ``TombstoneRange``).
    """
    wait_ms = 0 if "tombstone-wait" in settings.without else settings.delete_retention_ms
    return tuple((entry.first, entry.end) for entry in log.tombstones if entry.cleaned_at_ms + wait_ms <= now_ms)


def begin_pass(log: Log, settings: Settings, *, now_ms: int) -> Update | None:
    """Run one pass over a log as it is now; None if it has no dirty offsets and no removable tombstone.

    Only indexed offsets become clean, down to the key that did not fit. A record there is the last of its key in all
    dirty ranges, and once everything below has been rewritten, the only record of its key at or below its offset.
    """
    unclean, without = dirty(log), settings.without
    expired = removable(log, settings, now_ms=now_ms)
    if not unclean and not expired:
        return None
    latest = KeyOffsetMap(settings.map_bytes, without)
    indexed = _scan(log.objects, unclean, latest, backwards="backward-scan" not in without)
    cleaned = unclean if "cleaned-ranges" in without else indexed

    def is_expired(record: Record) -> bool:
        if "clean-tombstones" in without:
            return record.timestamp_ms + settings.delete_retention_ms <= now_ms
        return holds(expired, record.offset)

    def stays(record: Record) -> bool:
        if record.offset < latest.latest(_key(record)):
            return False
        return record.value is not None or not is_expired(record)

    touched = union((*indexed, *expired))
    if touched and "whole-prefix" not in without:
        touched = ((0, touched[-1][1]),)
    read = [piece for piece in log.objects if overlap(touched, piece.base_offset, piece.end_offset)]
    objects = _rewritten(read, settings.object_records, stays)
    tombstones = [record.offset for piece in objects for record in piece.records() if record.value is None]
    with_tombstones = tuple(area for area in cleaned if any(holds((area,), offset) for offset in tombstones))
    return Update(log.compaction_epoch, objects, Bookkeeping(cleaned, with_tombstones, expired, now_ms, log.end_offset))


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


def _rewritten(
    objects: Iterable[L1Object], object_records: int, stays: Callable[[Record], bool]
) -> tuple[L1Object, ...]:
    """Return new objects with the records that stay, which cover the offsets of the old objects."""
    rewritten: list[L1Object] = []
    for piece in objects:
        # A batch without records is left out: L0 has the producers' state (the post).
        retained = ((batch, tuple(filter(stays, batch.records))) for batch in piece.batches)
        batches = tuple(batch.keeping(records) for batch, records in retained if records)
        last = rewritten[-1] if rewritten else None
        if last and last.end_offset == piece.base_offset and len(list(last.records())) < object_records:
            rewritten[-1] = L1Object(last.base_offset, piece.end_offset, (*last.batches, *batches))
        else:
            rewritten.append(L1Object(piece.base_offset, piece.end_offset, batches))
    return tuple(rewritten)
