"""One pass of the log cleaner over one replica, by the rules of ``Cleaner`` and ``MemoryRecords.filterTo``.

* Whole segments are cleaned, up to the segment with the last stable offset or the active segment. The records since
  the last pass (the dirty part) give the last offset of each key; aborted batches do not count.
* An aborted batch loses all of its records at once. A marker may be removed once no batch of its transaction is met.
* A batch that keeps a tombstone, or a marker that may be removed, gets its delete horizon in this pass; a pass at or
  after that horizon removes it.
* A producer's last batch and the last batch of the pass (from 4.4 on, the last one below the high watermark) stay, at
  least as empty batches.
* The ``.txnindex`` is written anew: an aborted transaction stays in it while batches of it are met.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from harness.broker_files.segments.records import ABORT, COMMIT, MAX_INT64
from harness.models.log.replica import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.broker_files.segments.records import Record
    from harness.broker_files.side_files.producer_state import AbortedTxn
    from harness.models.log.batch import Batch
    from harness.models.log.replica import Replica


@dataclass(slots=True)
class _Ongoing:
    entry: AbortedTxn
    data_met: bool = False


@dataclass(slots=True)
class _Transactions:
    """The transactions at the current position of a pass (``CleanedTransactionMetadata``)."""

    committed: set[int] = field(default_factory=set)
    aborted: dict[int, _Ongoing] = field(default_factory=dict)
    ahead: list[tuple[int, int, AbortedTxn]] = field(default_factory=list)
    """Heap of the entries not yet reached, by first offset; the number orders entries with equal offsets."""
    collected: int = 0
    retained: list[AbortedTxn] = field(default_factory=list)

    def expect(self, entries: list[AbortedTxn]) -> None:
        for entry in entries:
            self.collected += 1
            heapq.heappush(self.ahead, (entry.first_offset, self.collected, entry))

    def may_discard(self, batch: Batch) -> bool:
        """Return whether a data batch is aborted, or whether a marker has no batch of its transaction left."""
        while self.ahead and self.ahead[0][0] <= batch.last_offset:
            entry = heapq.heappop(self.ahead)[2]
            self.aborted.setdefault(entry.producer_id, _Ongoing(entry))
        if batch.control:
            return self._marker(batch)
        if not batch.transactional:
            return False
        if ongoing := self.aborted.get(batch.producer_id):
            ongoing.data_met = True
            return True
        self.committed.add(batch.producer_id)
        return False

    def _marker(self, batch: Batch) -> bool:
        if batch.marker == ABORT:
            ongoing = self.aborted.pop(batch.producer_id, None)
            if ongoing and ongoing.data_met:
                self.retained.append(ongoing.entry)
                return False
        elif batch.marker == COMMIT and batch.producer_id in self.committed:
            self.committed.remove(batch.producer_id)
            return False
        return True


def has_null_value(record: Record) -> bool:
    """Whether Kafka's cleaner treats a record as a tombstone."""
    return record.is_tombstone


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The settings of a cleaner, from topic and broker.

    ``group_batches``: neighbouring segments are merged into segments of at most so many batches, as counted before
    cleaning. ``active_too``: the active segment is cleaned like others, and a pass needs no dirty records, as long as
    no transaction is open. This stands for endless traffic on other keys, which rolls segments and gives the cleaner
    work: without it, small clusters would need such records in every step. ``last_of_pass_stays``: see
    `harness.models.log.version_rules.VersionRules`.
    """

    delete_retention_ms: int
    producer_expiration_ms: int
    min_compaction_lag_ms: int = 0
    group_batches: int = 1_000_000
    is_tombstone: Callable[[Record], bool] = has_null_value
    active_too: bool = False
    last_of_pass_stays: bool = True


@dataclass(frozen=True)
class Bounds:
    """Offsets from which on nothing is removed yet, whatever its age: coordination adds them to Kafka's rules."""

    tombstones: int = MAX_INT64
    markers: int = MAX_INT64


UNBOUNDED: Final = Bounds()


def stable_segments(replica: Replica, cleaning: Cleaning, now_ms: int) -> int:
    """Return how many segments, from the first on, a pass may clean now, dirty or not.

    ``LogCleanerManager.cleanableOffsets``: up to the last stable offset, the active segment, and the first segment
    with a record that is younger than ``min.compaction.lag.ms``.
    """
    stable_offset = replica.last_stable_offset
    lag_ms = cleaning.min_compaction_lag_ms
    count = 0
    for segment, end in zip(replica.segments, _ends(replica, cleaning), strict=False):
        if end > stable_offset or (lag_ms and segment.has_younger(now_ms - lag_ms)):
            break
        count += 1
    return count


def cleanable_segments(replica: Replica, cleaning: Cleaning, now_ms: int) -> int:
    """Return how many segments, from the first on, a pass may clean now; 0 where none of them is dirty."""
    count = stable_segments(replica, cleaning, now_ms)
    has_more = cleaning.active_too and replica.last_stable_offset == replica.log_end
    return count if count and (has_more or _ends(replica, cleaning)[count - 1] > first_dirty(replica)) else 0


def _ends(replica: Replica, cleaning: Cleaning) -> list[int]:
    """Return the end offset of each segment that may be cleaned."""
    ends = [segment.base_offset for segment in replica.segments[1:]]
    return [*ends, replica.log_end] if cleaning.active_too else ends


def first_dirty(replica: Replica) -> int:
    """Return the first dirty offset: from there on, the next pass maps keys to offsets."""
    at = replica.log_start if replica.cleaned_to is None else replica.cleaned_to
    return at if replica.log_start <= at <= replica.log_end else replica.log_start


def clean(replica: Replica, cleaning: Cleaning, now_ms: int, bounds: Bounds = UNBOUNDED) -> bool:
    """Run one pass, and return whether there was anything dirty."""
    replica.expire(now_ms, cleaning.producer_expiration_ms)
    count = cleanable_segments(replica, cleaning, now_ms)
    if not count:
        return False
    end = replica.segments[count].base_offset if count < len(replica.segments) else replica.log_end
    kept_end = end if cleaning.last_of_pass_stays else replica.high_watermark
    last_of_keys = _last_offsets(replica, first_dirty(replica), end, count)
    seen = _Transactions()
    cleaned: list[Segment] = []
    at = 0
    while at < count:
        group = _group(replica.segments[at:count], cleaning.group_batches)
        target = Segment(group[0].base_offset)
        seen.retained = target.aborted
        for number, segment in enumerate(group):
            upper = group[number + 1].base_offset if number + 1 < len(group) else segment.next_offset
            seen.expect(_aborted_before(replica, at + number, upper))
            for batch in segment.batches:
                may_discard = seen.may_discard(batch)
                stays = _is_last_of_producer(batch, replica) or batch.last_offset + 1 == kept_end
                due = batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now_ms
                due &= batch.last_offset < (bounds.markers if batch.control else bounds.tombstones)
                records = _retained(batch, last_of_keys, cleaning, may_discard=may_discard, due=due)
                if records:
                    ages = _ages(batch, records, cleaning, may_discard=may_discard)
                    stamp_ms = now_ms + cleaning.delete_retention_ms if ages else None
                    target.batches.append(_rewritten(batch, records, stamp_ms))
                elif stays:
                    target.batches.append(replace(batch, records=(), delete_horizon_ms=None))
        cleaned.append(target)
        at += len(group)
    replica.replaced = replica.segments[:count]
    replica.segments[:count] = cleaned
    bases = {segment.base_offset for segment in replica.segments}
    replica.snapshots = {at: producers for at, producers in replica.snapshots.items() if at in bases}
    replica.cleaned_to = end
    return True


def _group(segments: list[Segment], group_batches: int) -> list[Segment]:
    group = [segments[0]]
    size = len(segments[0].batches)
    for segment in segments[1:]:
        size += len(segment.batches)
        if size > group_batches:
            break
        group.append(segment)
    return group


def _aborted_before(replica: Replica, from_segment: int, upper: int) -> list[AbortedTxn]:
    """Collect the aborted transactions that begin before ``upper`` (``LocalLog.collectAbortedTransactions``)."""
    entries = []
    for segment in replica.segments[from_segment:]:
        for entry in segment.aborted:
            if entry.last_offset >= replica.log_start and entry.first_offset < upper:
                entries.append(entry)
            if entry.last_stable_offset >= upper:
                return entries
    return entries


def _last_offsets(replica: Replica, start: int, end: int, count: int) -> dict[bytes, int]:
    first = max(index for index, segment in enumerate(replica.segments) if index == 0 or segment.base_offset <= start)
    seen = _Transactions()
    seen.expect(_aborted_before(replica, first, end))
    last: dict[bytes, int] = {}
    for segment in replica.segments[first:count]:
        for batch in segment.batches:
            if not seen.may_discard(batch) and not batch.control:
                last.update({r.key: r.offset for r in batch.records if r.key is not None and r.offset >= start})
    return last


def _retained(
    batch: Batch, last_of_keys: dict[bytes, int], cleaning: Cleaning, *, may_discard: bool, due: bool
) -> tuple[Record, ...]:
    """Return the records that stay; ``due``: the batch's delete horizon has come."""
    if batch.control:
        return () if may_discard and due else batch.records
    if may_discard:
        return ()
    return tuple(
        record
        for record in batch.records
        if record.key is not None
        and record.offset >= last_of_keys.get(record.key, -1)
        and not (due and cleaning.is_tombstone(record))
    )


def _ages(batch: Batch, records: tuple[Record, ...], cleaning: Cleaning, *, may_discard: bool) -> bool:
    """Return whether a batch gets its delete horizon in this pass."""
    goes = may_discard if batch.control else any(cleaning.is_tombstone(record) for record in records)
    return goes and batch.delete_horizon_ms is None


def _rewritten(batch: Batch, records: tuple[Record, ...], stamp_ms: int | None) -> Batch:
    """Return the batch with these records; the same object where nothing changes."""
    left = batch.keeping(records)
    return left if stamp_ms is None else replace(left, delete_horizon_ms=stamp_ms)


def _is_last_of_producer(batch: Batch, replica: Replica) -> bool:
    """Return whether a batch has its producer's last sequence number or, if a marker came last, its last epoch."""
    producer = replica.producers.get(batch.producer_id)
    if batch.producer_id < 0 or producer is None:
        return False
    if producer.last_offset >= 0:
        return batch.last_offset == producer.last_offset
    return batch.control and batch.producer_epoch == producer.epoch
