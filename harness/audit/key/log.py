"""The records of one key in one replica's log, and the outcome of each by the markers of that log.

The log is read batch by batch. The newest `MOST_RECORDS` records of the key are kept, and the open transactions.
The rules are those of `checkers.replay.batch_outcomes`, for a single key and without Spark (``ProducerStateManager``,
``ProducerAppendInfo``): the next marker of a producer ends its transaction, an emptied data batch opens one, and an
emptied control batch ends none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from harness.broker_files.copies.copies import LEADER_EPOCHS
from harness.broker_files.segments.batches import (
    Batch,
    CorruptLogError,
    OldEntry,
    iter_entries,
    iter_records,
    marker,
    until_cut,
)
from harness.broker_files.segments.blocks import WORTH_COMPILING_BYTES, iter_blocks
from harness.broker_files.segments.codecs import decompress
from harness.broker_files.segments.records import COMMIT, MARKERS
from harness.broker_files.side_files.checkpoints import read_leader_epochs

if TYPE_CHECKING:
    from harness.audit.cleaning import Cleaning
    from harness.broker_files.copies.copies import ReplicaCopy

MOST_RECORDS: Final = 1000


@dataclass
class KeyRecord:
    """A record of the key.

    ``value``: None for a tombstone. ``producer_id``: of a transaction, else None. ``horizon_ms``: the delete horizon of
    its batch, which a cleaner has set. ``ended_at``: the offset of the marker that gives the ``outcome``.
    """

    offset: int
    timestamp_ms: int
    value: bytes | None
    leader_epoch: int
    producer_id: int | None = None
    horizon_ms: int | None = None
    outcome: str = COMMITTED
    ended_at: int | None = None


@dataclass
class KeyLog:
    """A replica's log as far as it was read.

    ``epochs``: the first offset of each leader epoch, and the last one in this log. ``end``: the offset after the last
    batch.
    the key's records. ``opened``: the first offset of each producer's open transaction.
    """

    key: bytes
    log_start: int
    end: int = 0
    whole_from: int = 0
    count: int = 0
    records: deque[KeyRecord] = field(default_factory=lambda: deque(maxlen=MOST_RECORDS))
    opened: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    has_old_format: bool = False
    _pending: dict[int, deque[KeyRecord]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin at the log start offset."""
        self.end = self.whole_from = self.log_start

    def add(self, entries: Iterable[Batch | OldEntry], source: str) -> None:
        """Read on. Raises `CorruptLogError` for records that cannot be read."""
        for entry in entries:
            if isinstance(entry, OldEntry):
                self.has_old_format = True
            elif entry.last_offset >= self.log_start:
                self._add(entry, source)
            self.end = max(self.end, entry.last_offset + 1)

    def _add(self, batch: Batch, source: str) -> None:
        if batch.base_offset > self.end or batch.record_count <= batch.last_offset - batch.base_offset:
            self.whole_from = batch.last_offset + 1
        first, _ = self.epochs.get(batch.leader_epoch, (batch.base_offset, 0))
        self.epochs[batch.leader_epoch] = first, batch.last_offset
        if batch.is_control:
            ending = marker(batch, source=source)
            if ending is not None and ending.type in MARKERS:
                self.opened.pop(batch.producer_id, None)
                for record in self._pending.pop(batch.producer_id, ()):
                    record.outcome = COMMITTED if ending.type == COMMIT else ABORTED
                    record.ended_at = batch.last_offset
            return
        if batch.is_transactional:
            self.opened.setdefault(batch.producer_id, batch.base_offset)
        for record in _records_of(self.key, batch, source):
            if record.offset >= self.log_start:
                self.count += 1
                self.records.append(record)
                if batch.is_transactional:
                    self._pending.setdefault(batch.producer_id, deque(maxlen=MOST_RECORDS)).append(record)


def _records_of(key: bytes, batch: Batch, source: str) -> Iterator[KeyRecord]:
    """Yield the batch's records of the key. Only batches that have its bytes somewhere are parsed."""
    try:
        if batch.is_empty or key not in decompress(batch.codec, batch.payload):
            return
    except ValueError as error:
        raise CorruptLogError(source, batch.position, str(error)) from error
    is_transactional = batch.is_transactional
    for record in iter_records(batch, source=source):
        if record.key == key:
            yield KeyRecord(
                record.offset,
                record.timestamp_ms,
                record.value,
                batch.leader_epoch,
                batch.producer_id if is_transactional else None,
                batch.delete_horizon_ms,
                OPEN if is_transactional else COMMITTED,
            )


def read_copy(copy: ReplicaCopy, log: KeyLog) -> None:
    """Read a copied replica. Only its last segment may be cut. Raises `CorruptLogError` and OSError."""
    epochs = copy.folder / LEADER_EPOCHS
    if epochs.exists():
        starts = read_leader_epochs(epochs.read_bytes(), source=str(epochs))
        log.epochs = {epoch: (start, start - 1) for epoch, start in starts.items()}
    for path in copy.logs:
        entries = _entries(path)
        log.add(until_cut(entries) if path == copy.logs[-1] else entries, str(path))


def _entries(path: Path) -> Iterator[Batch | OldEntry]:
    if path.stat().st_size < WORTH_COMPILING_BYTES:
        yield from iter_entries(path.read_bytes(), source=str(path))
        return
    with path.open("rb") as file:
        for block in iter_blocks(file, source=str(path)):
            yield from (OldEntry(0, 0, int(row["last_offset"]), int(row["magic"])) for row in block.skipped)
            yield from (block.batch(index) for index in range(len(block.batches)))


@dataclass(frozen=True)
class KeyReplica:
    """A replica's log of the key, and what its broker, or its disk, says about the replica.

    ``is_complete``: whether everything that any cleaner knew was read (`harness.audit.live.spool`); for copies, whether
    the log has every offset beyond the bound. ``work``: of its cleaner; None where that is unknown.
    """

    broker: int
    log: KeyLog
    high_watermark: int
    last_stable: int
    is_complete: bool | None = None
    work: Cleaning | None = None

    def newest(self, end: int) -> KeyRecord | None:
        """Return the newest record before an offset that is committed on this replica."""
        records = (record for record in reversed(self.log.records) if record.offset < end)
        return next((record for record in records if record.outcome == COMMITTED), None)
