"""The metastore's state of one partition, and which updates of it are accepted.

All state is immutable: an accepted update gives a new ``Log``. Objects are compared by identity; two uploads with the
same content are two objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from harness.broker_files.segments.records import Record
from harness.models.log.batch import ModelBatch

Range: TypeAlias = tuple[int, int]
"""Offsets, from the first up to an end."""
Ranges: TypeAlias = tuple[Range, ...]
"""A set of offsets as ascending ranges that neither touch nor overlap."""


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the union of ranges in any order; empty ranges are dropped, neighbours are merged."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif first < end:
            merged.append((first, end))
    return tuple(merged)


def gaps(ranges: Ranges, end: int) -> Ranges:
    """Return the ranges between 0 and ``end`` that these ranges do not cover."""
    starts, ends = (0, *(after for _, after in ranges)), (*(first for first, _ in ranges), end)
    return tuple((at, min(first, end)) for at, first in zip(starts, ends, strict=True) if at < min(first, end))


def holds(ranges: Ranges, offset: int) -> bool:
    """Return whether an offset is in one of these ranges."""
    return overlap(ranges, offset, offset + 1)


def overlap(ranges: Ranges, first: int, end: int) -> bool:
    """Return whether one of these ranges overlaps the range from ``first`` up to ``end``."""
    return any(low < end and first < high for low, high in ranges)


@dataclass(frozen=True, slots=True, eq=False)
class L1Object:
    """One immutable object: the remaining batches of the offsets from its base up to its end."""

    base_offset: int
    end_offset: int
    batches: tuple[ModelBatch, ...]

    def records(self) -> Iterator[Record]:
        """Return its records, in order."""
        for batch in self.batches:
            yield from batch.records


class TombstoneRange(NamedTuple):
    """A range that was cleaned in one pass and kept tombstones, and the commit time of that pass.

    The post says only that cleaned ranges help to determine which tombstones are discardable; delete.retention.ms is
    Kafka's rule, as a slow consumer may have read an earlier value. Decided here: the values that a tombstone deletes
    are visible until the commit that cleans the tombstone's range, so the time counts from that commit. Adjoining
    ranges are not merged, as their times differ.
    """

    first: int
    end: int
    cleaned_at_ms: int


@dataclass(frozen=True, slots=True)
class Log:
    """One partition: its objects in order of offsets, and the bookkeeping of compaction (the post).

    A record in ``cleaned`` has no earlier record of its key anywhere in the log. This remains true: records are
    only appended, and so no such record has to be indexed again.
    """

    objects: tuple[L1Object, ...] = ()
    end_offset: int = 0
    compaction_epoch: int = 0
    cleaned: Ranges = ()
    tombstones: tuple[TombstoneRange, ...] = ()

    def records(self) -> Iterator[Record]:
        """Return the records that a reader from the start gets now."""
        for piece in self.objects:
            yield from piece.records()


class Bookkeeping(NamedTuple):
    """The ranges of a pass: clean from now on, of them with tombstones, and without tombstones from now on.

    ``log_end``: the log end offset in the metadata that the pass read.
    """

    cleaned: Ranges
    with_tombstones: Ranges
    rid_of_tombstones: Ranges
    began_at_ms: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Update:
    """A request to the metastore; ``expected_epoch`` is None where an earlier step checked the epoch."""

    expected_epoch: int | None
    objects: tuple[L1Object, ...]
    bookkeeping: Bookkeeping | None


def appended(log: Log, batches: Sequence[ModelBatch]) -> Log:
    """Return the log with one more object, from decided batches of L0.

    L1 has neither control batches nor aborted data (the post). L0 leaves their offsets out, so that an object begins
    at the log end, which may be before its first batch; a batch without records only covers offsets.

    Decided here: an append does not raise the compaction epoch, otherwise every compaction would be refused while
    a producer is busy; and the update of a pass concerns only objects that the pass has read, so that it cannot lose
    records that were appended since.
    """
    at = log.end_offset
    for batch in batches:
        if batch.control or batch.transactional:
            raise ValueError(f"batch {batch.base_offset}: L1 has no control batches and no open transactions")
        if batch.base_offset < at:
            raise ValueError(f"batch {batch.base_offset}: the log ends at {at}")
        if any(record.key is None for record in batch.records):
            raise ValueError(f"batch {batch.base_offset}: a compacted topic takes no record without a key")
        at = batch.last_offset + 1
    if at == log.end_offset:
        return log
    piece = L1Object(log.end_offset, at, tuple(batch for batch in batches if batch.records))
    return replace(log, objects=(*log.objects, piece), end_offset=at)


def stages(update: Update, without: frozenset[str] = frozenset()) -> tuple[Update, ...]:
    """Return the steps in which an update is applied: one (the post: committed atomically), unless a rule is off.

    With several steps, the epoch is checked with the first step, and raised with the bookkeeping.
    """
    replacements, bookkeeping = [Update(None, (piece,), None) for piece in update.objects], replace(update, objects=())
    if "atomic-commit" in without:
        return (bookkeeping, *replacements)
    if "atomic-replace" not in without:
        return (update,)
    first, *others = [*replacements, replace(bookkeeping, expected_epoch=None)]
    return (replace(first, expected_epoch=update.expected_epoch), *others)


def refusal(log: Log, update: Update, without: frozenset[str] = frozenset()) -> str | None:
    """Return why an update is refused; None where it is accepted.

    The post has optimistic concurrency by ``compaction_epoch``. Decided here: replaced offsets must be the offsets of
    complete objects; an update that is refused for this reason is also refused by the epoch.
    """
    if "compaction-epoch" not in without and update.expected_epoch not in {None, log.compaction_epoch}:
        return f"made at compaction epoch {update.expected_epoch}, it is {log.compaction_epoch}"
    bases, ends = {piece.base_offset for piece in log.objects}, {piece.end_offset for piece in log.objects}
    for piece in update.objects if "aligned-extents" not in without else ():
        if piece.base_offset not in bases or piece.end_offset not in ends:
            return f"offsets {piece.base_offset} to {piece.end_offset} split an object"
    return None


def applied(log: Log, update: Update, *, now_ms: int, without: frozenset[str] = frozenset()) -> Log:
    """Return the log after an accepted update, with a higher epoch (the post). ``now_ms``: the time of the commit."""
    replaced = union((piece.base_offset, piece.end_offset) for piece in update.objects)
    others = [piece for piece in log.objects if not overlap(replaced, piece.base_offset, piece.end_offset)]
    objects = tuple(sorted((*others, *update.objects), key=lambda piece: piece.base_offset))
    bookkeeping = update.bookkeeping
    if bookkeeping is None:
        return replace(log, objects=objects)
    cleaned, with_tombstones = bookkeeping.cleaned, bookkeeping.with_tombstones
    if "snapshot-end" in without:
        later = (bookkeeping.log_end, log.end_offset)
        cleaned, with_tombstones = union((*cleaned, later)), union((*with_tombstones, later))
    cleaned_at_ms = bookkeeping.began_at_ms if "commit-time" in without else now_ms
    aging = {(entry.first, entry.end): entry for entry in log.tombstones}
    new = {area: TombstoneRange(*area, cleaned_at_ms) for area in with_tombstones if area not in aging}
    aging = {area: entry for area, entry in aging.items() if area not in bookkeeping.rid_of_tombstones} | new
    return Log(
        objects=objects,
        end_offset=log.end_offset,
        compaction_epoch=log.compaction_epoch + 1,
        cleaned=union((*log.cleaned, *cleaned)),
        tombstones=tuple(sorted(aging.values(), key=lambda entry: entry.first)),
    )
