"""One replica's log and the state that its broker derives from it: open transactions, ``.txnindex``, snapshots.

Source of the rules: ``UnifiedLog``, ``ProducerStateManager`` and ``ProducerAppendInfo`` (Kafka 3.9 to 4.4). A replica
never uses the truth: its beliefs come from the batches that it received.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

from harness.broker_files.segments.records import ABORT, coordinator_epoch
from harness.broker_files.side_files.producer_state import AbortedTxn, ProducerEntry
from harness.models.log.batch import ModelBatch


@dataclass(slots=True)
class ModelSegment:
    """Batches, and the aborted transactions whose markers are here. ``clean_since_ms``: of Redpanda's first pass."""

    base_offset: int
    batches: list[ModelBatch] = field(default_factory=list)
    aborted: list[AbortedTxn] = field(default_factory=list)
    clean_since_ms: int | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the last batch (``LogSegment.readNextOffset``)."""
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    def fork(self) -> ModelSegment:
        """Return an independent copy."""
        return ModelSegment(self.base_offset, list(self.batches), list(self.aborted), self.clean_since_ms)


@dataclass(slots=True)
class Replica:
    """A partition's log on one broker.

    ``cleaned_to``: the cleaner's checkpoint, None before its first pass. ``received``: the offset of every record that
    was ever appended to this replica. ``diverged_from``: the start of an unreplicated tail, which must be truncated
    before the next fetch. ``replaced``: the segments that the last pass of the cleaner replaced. ``unreplicated``:
    first offset and marker of every transaction whose marker the high watermark has not passed. ``epochs``: the start
    offset of each leader epoch in this log (``LeaderEpochFileCache``). ``stable_at_batch``: see
    `harness.models.log.version_rules.VersionRules`. A producer's entry has only its last batch.
    """

    broker: int
    segments: list[ModelSegment] = field(default_factory=lambda: [ModelSegment(0)])
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    snapshots: dict[int, dict[int, ProducerEntry]] = field(default_factory=dict)
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    cleaned_to: int | None = None
    received: set[int] = field(default_factory=set)
    diverged_from: int | None = None
    replaced: list[ModelSegment] = field(default_factory=list)
    unreplicated: list[tuple[int, int]] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    stable_at_batch: bool = False

    @property
    def last_stable_offset(self) -> int:
        """First offset of the first open or unreplicated transaction, at most the high watermark."""
        firsts = [first for *_, first in self.open_transactions] + [first for first, _ in self.unreplicated]
        first = min(firsts, default=self.high_watermark)
        if first < self.log_start:
            fetched = (batch.base_offset for batch in self.from_offset(self.log_start))
            first = next(fetched, self.log_end) if self.stable_at_batch else self.log_start
        return min(self.high_watermark, first)

    @property
    def aborted(self) -> list[AbortedTxn]:
        """All entries of the ``.txnindex`` files, in the order of the log."""
        return [entry for segment in self.segments for entry in segment.aborted]

    def is_aborted(self, batch: ModelBatch) -> bool:
        """Return whether a data batch lies in a transaction that is aborted by this replica's ``.txnindex``."""
        return (batch.transactional and not batch.control) and any(
            entry.producer_id == batch.producer_id and entry.first_offset <= batch.base_offset <= entry.last_offset
            for entry in self.aborted
        )

    def fork(self) -> Replica:
        """Return an independent copy; batches are immutable, and shared."""
        # `dataclasses.replace` takes several times as long, and walks do little else.
        return Replica(
            self.broker,
            [segment.fork() for segment in self.segments],
            dict(self.producers),
            dict(self.snapshots),
            self.log_start,
            self.log_end,
            self.high_watermark,
            self.cleaned_to,
            set(self.received),
            self.diverged_from,
            self.replaced,
            list(self.unreplicated),
            dict(self.epochs),
            self.stable_at_batch,
        )

    def batches(self) -> Iterator[ModelBatch]:
        """Return the batches of the whole log, including those before the log start offset in the first segment."""
        return chain.from_iterable(segment.batches for segment in self.segments)

    def append(self, batch: ModelBatch, *, roll: bool = False) -> int | None:
        """Append, also beyond the log end; return the first offset of the transaction that the batch ends, if any."""
        if roll and self.segments[-1].batches:
            self.segments.append(ModelSegment(batch.base_offset))
            if self.snapshots or batch.base_offset > self.log_start:
                # Else no batch was appended since the log start moved here (``ProducerStateManager.takeSnapshot``).
                self.snapshots[batch.base_offset] = dict(self.producers)
            self.delete_before(self.log_start)
        segment = self.segments[-1]
        segment.batches.append(batch)
        self.log_end = batch.last_offset + 1
        self.begin_epoch(batch.leader_epoch, batch.base_offset)
        self.received.update(record.offset for record in batch.records)
        ended = self._note_aborted(segment, batch)
        if ended is not None:
            self.unreplicated.append((ended, batch.last_offset))
        return ended

    def correct_stable_offsets(self, ended: Sequence[tuple[int, int, int]]) -> None:
        """Correct last stable offsets in ``.txnindex`` entries of transactions that ended in one fetch response.

        ``ended``: producer id, first offset and marker of each transaction, in order. A broker computes these offsets
        after the whole response: transactions that began or ended later in the response count, too
        (``UnifiedLog.append``).
        """
        for number, (producer_id, _, last) in enumerate(ended):
            others = [first for other, _, first in self.open_transactions if other != producer_id]
            others += [first for other, first, _ in ended[number + 1 :] if other != producer_id]
            stable, aborted = min(others, default=last + 1), self.segments[-1].aborted
            aborted[:] = [replace(it, last_stable_offset=stable) if it.last_offset == last else it for it in aborted]

    def _note_aborted(self, segment: ModelSegment, batch: ModelBatch) -> int | None:
        ended = self._note(batch)
        if ended is not None and batch.marker == ABORT:
            stable = min((first for *_, first in self.open_transactions), default=batch.last_offset + 1)
            segment.aborted.append(AbortedTxn(batch.producer_id, ended, batch.last_offset, stable))
        return ended

    def _note(self, batch: ModelBatch) -> int | None:
        """Update the producer; return the first offset of the transaction that this batch ends, if it does."""
        if batch.producer_id < 0:
            return None
        new = ProducerEntry(batch.producer_id)
        before = self.producers.get(batch.producer_id, new)
        open_from = before.current_txn_first_offset
        if not batch.control:
            self.producers[batch.producer_id] = ProducerEntry(
                batch.producer_id,
                batch.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                batch.max_timestamp_ms,
                before.coordinator_epoch,
                batch.base_offset if batch.transactional and open_from is None else open_from,
            )
            return None
        if batch.marker is None:
            # The producer's entry is updated with itself; a missing entry is created.
            self.producers[batch.producer_id] = before
            return None
        self.producers[batch.producer_id] = replace(
            before if before.producer_epoch == batch.producer_epoch else new,
            producer_epoch=batch.producer_epoch,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=coordinator_epoch(batch.records[0]),
            current_txn_first_offset=None,
        )
        return open_from

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Record the start of a leader epoch; drop epochs without a batch (``LeaderEpochFileCache.assign``)."""
        if epoch not in self.epochs:
            self._drop_epochs(offset)
            self.epochs[epoch] = offset

    def _drop_epochs(self, end: int) -> None:
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < end}

    def follow(self, leader: Replica) -> None:
        """Drop a last epoch that the leader has not (``LeaderEpochFileCache.endOffsetFor``, ``truncateFromEnd``)."""
        last = max(self.epochs, default=-1)
        if max((epoch for epoch in leader.epochs if epoch <= last), default=last) < last:
            self._drop_epochs(self.log_end)

    def accepts(self, producer_id: int, epoch: int, first_sequence: int, *, from_zero: bool = False) -> bool:
        """Return whether a leader accepts a producer's next batch (``ProducerAppendInfo.checkSequence``).

        ``from_zero``: as the first batch of an unknown producer, only sequence number 0 (transactions of version 2).
        """
        entry = self.producers.get(producer_id, ProducerEntry(producer_id))
        if entry.producer_epoch < 0:
            return first_sequence == 0 or not from_zero
        return first_sequence == (entry.last_sequence + 1 if entry.producer_epoch == epoch else 0)

    def advance_high_watermark(self, leaders: int) -> None:
        """Take the leader's high watermark, at most up to this log's end."""
        self.high_watermark = max(self.high_watermark, min(leaders, self.log_end))
        self.unreplicated = [(first, last) for first, last in self.unreplicated if last >= self.high_watermark]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Expire idle producers; a producer with an open transaction never expires."""
        self.producers = {
            producer_id: it
            for producer_id, it in self.producers.items()
            if it.current_txn_first_offset is not None or now_ms - it.timestamp_ms < expiration_ms
        }

    def from_offset(self, offset: int) -> Iterator[ModelBatch]:
        """Iterate over the batches that end at or after ``offset``, as a fetch does."""
        for segment in self.segments[max(0, bisect_right(self.segments, offset, key=_BASE) - 1) :]:
            yield from segment.batches[bisect_left(segment.batches, offset, key=_LAST) :]

    def truncate(self, offset: int) -> None:
        """Drop all batches from ``offset`` on, the base offset of a batch, and derive the producers again.

        A segment that begins there stays, without batches (``LocalLog.truncateTo``). If all producers have expired, no
        batch after the snapshot is read (``UnifiedLog.rebuildProducerState``, ``isEmptyBeforeTruncation``).
        """
        reads_batches = bool(self.producers or self.unreplicated)
        segments = [segment for segment in self.segments if segment.base_offset <= offset]
        self.segments = segments or [ModelSegment(offset)]
        last = self.segments[-1]
        last.batches = [batch for batch in last.batches if batch.base_offset < offset]
        last.aborted = [entry for entry in last.aborted if entry.last_offset < offset]
        self.log_end = min(self.log_end, offset)
        self.high_watermark = min(self.high_watermark, self.log_end)
        self.cleaned_to = None if self.cleaned_to is None else min(self.cleaned_to, self.log_end)
        self.received = {received for received in self.received if received < offset}
        self.unreplicated.clear()
        self._drop_epochs(offset)
        self.diverged_from = None
        snapshots = self.snapshots.items()
        self.snapshots = {at: producers for at, producers in snapshots if self.log_start < at <= self.log_end}
        newest = max(self.snapshots, default=self.log_start)
        self.producers = dict(self.snapshots.get(newest, {}))
        for batch in self.from_offset(newest) if reads_batches else ():
            self._note(batch)

    def recover(self, checkpoint: int = 0) -> None:
        """Read the log again from its beginning, as a broker does that was killed (``LogLoader.recoverLog``).

        Afterwards it has the producers of the snapshot at its first segment and of the batches, and ``.txnindex`` has
        the aborted transactions of which a batch is left. A snapshot is taken before each further segment. This assumes
        that checkpoints, a minute old in practice, show no flushed batches. ``checkpoint``: of the log start; no
        snapshot at or before it is read (``ProducerStateManager.truncateAndReload``).
        """
        first = self.segments[0].base_offset
        self.producers = dict(self.snapshots.get(first, {}) if first > checkpoint else {})
        self.snapshots = {}
        self.unreplicated.clear()
        self._drop_epochs(self.log_end)
        for segment in self.segments:
            if segment.base_offset > first:
                self.snapshots[segment.base_offset] = dict(self.producers)
            segment.aborted = []
            for batch in segment.batches:
                self._note_aborted(segment, batch)
        self._drop_deleted_snapshots()

    def reopen(self) -> None:
        """Continue from the snapshot of an orderly shutdown, unless all records are deleted (``truncateAndReload``)."""
        if self.log_end <= self.log_start:
            self.producers = {}
        self._drop_deleted_snapshots()
        self.unreplicated.clear()
        self._drop_epochs(self.log_end)

    def _drop_deleted_snapshots(self) -> None:
        self.snapshots = {at: producers for at, producers in self.snapshots.items() if at > self.log_start}

    def restart_at(self, offset: int) -> None:
        """Drop the whole log, as the leader's log starts beyond its end (``truncateFullyAndStartAt``)."""
        self.segments = [ModelSegment(offset)]
        for state in (self.producers, self.snapshots, self.unreplicated, self.received, self.epochs):
            state.clear()
        self.diverged_from = None
        self.log_start = self.log_end = self.high_watermark = offset

    def delete_before(self, offset: int) -> None:
        """Raise the log start and its epoch's (``LeaderEpochFileCache.truncateFromStart``); drop segments before it."""
        if offset > self.log_start:
            self.log_start = offset
            began = [epoch for epoch, start in sorted(self.epochs.items()) if start <= offset]
            self.epochs = {epoch: start for epoch, start in self.epochs.items() if epoch not in began[:-1]}
            self.epochs.update(dict.fromkeys(began[-1:], offset))
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start:
            removed = self.segments.pop(0)
            self.snapshots.pop(removed.base_offset, None)

    @property
    def open_transactions(self) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first offset of each open transaction."""
        return [
            (entry.producer_id, entry.producer_epoch, entry.current_txn_first_offset)
            for entry in self.producers.values()
            if entry.current_txn_first_offset is not None
        ]

    def aborted_before(self, start: int, upper: int, fetched_from: int) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions that begin before ``upper`` (``LocalLog.collectAbortedTransactions``).

        ``start``: the base offset of the segment from which on the index is read. ``fetched_from``: transactions that
        ended before this offset are left out.
        """
        for entry in (entry for segment in self.segments if segment.base_offset >= start for entry in segment.aborted):
            if entry.last_offset >= fetched_from and entry.first_offset < upper:
                yield entry
            if entry.last_stable_offset >= upper:
                return


_BASE = attrgetter("base_offset")
_LAST = attrgetter("last_offset")
