"""One pass of the log cleaner over one replica, by the rules of ``Cleaner`` and ``MemoryRecords.filterTo``.

* The records since the last pass (the dirty part) give the last offset of each key; aborted batches do not count, and
  lose all records at once. A marker may be removed once its transaction has no batch left.
* A batch that keeps a tombstone, or a marker that may be removed, gets its delete horizon in this pass; a pass at or
  after that horizon removes it.
* The ``.txnindex`` is rewritten: an aborted transaction stays in it while the log has batches of it.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from typing import Final, NamedTuple

from harness.broker_files.segments.records import ABORT, MAX_INT64, Record
from harness.broker_files.side_files.producer_state import AbortedTxn
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import ModelSegment, Replica


@dataclass(slots=True)
class _Transactions:
    """The transactions at the current position of a pass (``CleanedTransactionMetadata``).

    ``aborted``: the index entry of each aborted transaction by producer; ``with_data``: producers of them that have a
    batch. ``ahead``: heap of the entries not yet reached, by first offset; the number orders entries of equal offsets.
    ``retained``: the entries that stay.
    """

    committed: set[int] = field(default_factory=set)
    aborted: dict[int, AbortedTxn] = field(default_factory=dict)
    with_data: set[int] = field(default_factory=set)
    ahead: list[tuple[int, int, AbortedTxn]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    retained: list[AbortedTxn] = field(default_factory=list)

    def expect(self, entries: Iterable[AbortedTxn]) -> None:
        for entry in entries:
            heapq.heappush(self.ahead, (entry.first_offset, next(self.numbers), entry))

    def may_discard(self, batch: ModelBatch) -> bool:
        """Return whether a data batch is aborted, or whether a marker has no batch of its transaction left."""
        while self.ahead and self.ahead[0][0] <= batch.last_offset:
            entry = heapq.heappop(self.ahead)[2]
            self.aborted.setdefault(entry.producer_id, entry)
        is_aborted = batch.marker == ABORT if batch.control else batch.producer_id in self.aborted
        with_batch = self.with_data if is_aborted else self.committed
        if not batch.control:
            if batch.transactional:
                with_batch.add(batch.producer_id)
            return batch.transactional and is_aborted
        if batch.marker is None:
            return True
        is_needed = batch.producer_id in with_batch
        if is_aborted and batch.producer_id in self.aborted:
            entry = self.aborted.pop(batch.producer_id)
            if is_needed:
                self.retained.append(entry)
        with_batch.discard(batch.producer_id)
        return not is_needed


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The settings of a cleaner, from topic and broker.

    ``group_batches``: neighbouring segments are merged into segments of at most so many batches, as counted before
    cleaning. ``active_too``: the active segment is cleaned like others, and a pass needs no dirty records, as long as
    no transaction is open; this stands for endless traffic on other keys, which rolls segments and gives the cleaner
    work. ``last_of_pass_stays``: see `harness.models.log.version_rules.VersionRules`.
    """

    delete_retention_ms: int
    producer_expiration_ms: int
    min_compaction_lag_ms: int = 0
    group_batches: int = 1_000_000
    active_too: bool = False
    last_of_pass_stays: bool = True


class Bounds(NamedTuple):
    """The offsets from which on no pass of coordinated compaction removes tombstones, and markers, of any age."""

    tombstones: int = MAX_INT64
    markers: int = MAX_INT64

    def most(self, other: "Bounds") -> "Bounds":
        """Return the later offset of each kind."""
        return Bounds(max(self.tombstones, other.tombstones), max(self.markers, other.markers))


UNBOUNDED: Final = Bounds()
MAX_INT32: Final = 2**31 - 1


def stable_segments(replica: Replica, cleaning: Cleaning, now_ms: int) -> int:
    """Return how many segments, from the first on, a pass may clean now, dirty or not.

    ``LogCleanerManager.cleanableOffsets``: up to the last stable offset, the active segment, and the first segment
    with a record that is younger than ``min.compaction.lag.ms``.
    """
    stable_offset, lag_ms, ends = replica.last_stable_offset, cleaning.min_compaction_lag_ms, _ends(replica, cleaning)
    for number, (segment, end) in enumerate(zip(replica.segments, ends, strict=False)):
        is_young = lag_ms and any(batch.max_timestamp_ms > now_ms - lag_ms for batch in segment.batches)
        if end > stable_offset or is_young:
            return number
    return len(ends)


def cleanable_segments(replica: Replica, cleaning: Cleaning, now_ms: int) -> int:
    """Return how many segments, from the first on, a pass may clean now; 0 where none of them is dirty."""
    count = stable_segments(replica, cleaning, now_ms)
    has_more = cleaning.active_too and replica.last_stable_offset == replica.log_end
    return count if count and (has_more or _ends(replica, cleaning)[count - 1] > first_dirty(replica)) else 0


def _ends(replica: Replica, cleaning: Cleaning) -> list[int]:
    ends = [segment.base_offset for segment in replica.segments[1:]]
    return [*ends, replica.log_end] if cleaning.active_too else ends


def first_dirty(replica: Replica) -> int:
    """Return the first dirty offset: from there on, the next pass maps keys to offsets."""
    at = replica.log_start if replica.cleaned_to is None else replica.cleaned_to
    return at if replica.log_start <= at <= replica.log_end else replica.log_start


def first_dirty_segment(replica: Replica) -> int:
    """Return the base offset of the segment that has the first dirty offset, maybe inside."""
    start = first_dirty(replica)
    return max((segment.base_offset for segment in replica.segments if segment.base_offset <= start), default=0)


def clean(replica: Replica, cleaning: Cleaning, now_ms: int, bounds: Bounds = UNBOUNDED) -> bool:
    """Run one pass, and return whether there was anything dirty."""
    replica.expire(now_ms, cleaning.producer_expiration_ms)
    cleanable = replica.segments[: cleanable_segments(replica, cleaning, now_ms)]
    if not cleanable:
        return False
    end = _ends(replica, cleaning)[len(cleanable) - 1]
    last_offset = (end if cleaning.last_of_pass_stays else replica.high_watermark) - 1
    last_of_keys = _last_offsets(replica, cleanable, end)
    transactions = _Transactions()
    cleaned: list[ModelSegment] = []
    for group in _groups(cleanable, cleaning.group_batches, end):
        target = ModelSegment(group[0].base_offset)
        transactions.retained = target.aborted
        for segment, later in zip_longest(group, group[1:]):
            upper = later.base_offset if later else segment.next_offset
            transactions.expect(replica.aborted_before(segment.base_offset, upper, replica.log_start))
            for batch in segment.batches:
                may_discard = transactions.may_discard(batch)
                is_due = batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now_ms
                is_due &= batch.last_offset < (bounds.markers if batch.control else bounds.tombstones)
                records = _retained(batch, last_of_keys, may_discard=may_discard, is_due=is_due)
                if records:
                    ages = may_discard if batch.control else any(record.is_tombstone for record in records)
                    rewritten = batch.keeping(records)
                    if ages and batch.delete_horizon_ms is None:
                        rewritten = replace(rewritten, delete_horizon_ms=now_ms + cleaning.delete_retention_ms)
                    target.batches.append(rewritten)
                elif batch.last_offset == last_offset or _is_last_of_producer(batch, replica):
                    target.batches.append(replace(batch, records=(), delete_horizon_ms=None))
        cleaned.append(target)
    replica.replaced = cleanable
    replica.segments[: len(cleanable)] = cleaned
    bases = {segment.base_offset for segment in replica.segments}
    replica.snapshots = {at: producers for at, producers in replica.snapshots.items() if at in bases}
    replica.cleaned_to = end
    return True


def _groups(segments: list[ModelSegment], group_batches: int, end: int) -> list[list[ModelSegment]]:
    """Group neighbours that become one segment (``groupSegmentsBySize``).

    An index has offsets below 2^31; an empty segment always joins the one before it.
    """
    groups: list[list[ModelSegment]] = []
    size = group_batches
    next_bases = [segment.base_offset for segment in segments[1:]] + [end]
    for segment, next_base in zip(segments, next_bases, strict=True):
        size += len(segment.batches)
        is_far = bool(groups and segment.batches) and next_base - 1 - groups[-1][0].base_offset > MAX_INT32
        if not groups or size > group_batches or is_far:
            groups.append([])
            size = len(segment.batches)
        groups[-1].append(segment)
    return groups


def _last_offsets(replica: Replica, cleanable: list[ModelSegment], end: int) -> dict[bytes, int]:
    """Return the last offset of each key in the dirty part, which may begin inside a segment."""
    start, first = first_dirty(replica), first_dirty_segment(replica)
    transactions = _Transactions()
    transactions.expect(replica.aborted_before(first, end, replica.log_start))
    last: dict[bytes, int] = {}
    for batch in (batch for segment in cleanable if segment.base_offset >= first for batch in segment.batches):
        if not transactions.may_discard(batch) and not batch.control:
            last.update({r.key: r.offset for r in batch.records if r.key is not None and r.offset >= start})
    return last


def _retained(
    batch: ModelBatch, last_of_keys: dict[bytes, int], *, may_discard: bool, is_due: bool
) -> tuple[Record, ...]:
    """Return the records that stay; ``is_due``: the batch's delete horizon has come."""
    if batch.control or may_discard:
        return batch.records if batch.control and not (may_discard and is_due) else ()
    return tuple(
        record
        for record in batch.records
        if record.key is not None
        and record.offset >= last_of_keys.get(record.key, -1)
        and not (is_due and record.is_tombstone)
    )


def _is_last_of_producer(batch: ModelBatch, replica: Replica) -> bool:
    """Return whether a batch has its producer's last sequence number or, if a marker came last, its last epoch."""
    producer = replica.producers.get(batch.producer_id)
    if batch.producer_id < 0 or producer is None:
        return False
    if producer.last_offset >= 0:
        return batch.last_offset == producer.last_offset
    return batch.control and batch.producer_epoch == producer.producer_epoch
