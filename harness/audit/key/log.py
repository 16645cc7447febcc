"""The records of one key in one replica's log, and the outcome of each by the markers of that log.

The log is read batch by batch. The newest `MOST_RECORDS` records of the key are kept, and the open transactions.
The rules are those of `checkers.replay.batch_outcomes`, for a single key and without Spark (``ProducerStateManager``,
``ProducerAppendInfo``): the next marker of a producer ends its transaction, an emptied data batch opens one, and an
emptied control batch ends none.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from harness.audit.cleaning import Cleaning
from harness.broker_files.copies.copies import LEADER_EPOCHS, ReplicaCopy
from harness.broker_files.segments.batches import CONTROL, DELETE_HORIZON, TRANSACTIONAL, until_cut
from harness.broker_files.segments.blocks import Block, Readable, iter_blocks, key_hashes, unpack
from harness.broker_files.segments.records import COMMIT, MARKERS
from harness.broker_files.side_files.checkpoints import read_leader_epochs

MOST_RECORDS: Final = 1000
_HEADER: Final = ("base_offset", "last_offset", "record_count", "attributes")
_COLUMNS: Final = (*_HEADER, "producer_id", "leader_epoch", "marker", "timestamp_base_ms")


@dataclass
class KeyRecord:
    """A record of the key.

    ``value``: None for a tombstone. ``producer_id``: of a transaction, else None. ``horizon_ms``: the delete horizon of
    its batch, which a cleaner has set. ``ended_at``: the offset of the marker that gives the ``outcome``.
    """

    offset: int
    timestamp_ms: int
    value: bytes | None
    leader_epoch: int = -1
    producer_id: int | None = None
    horizon_ms: int | None = None
    outcome: str = COMMITTED
    ended_at: int | None = None


@dataclass
class KeyLog:
    """A replica's log as far as it was read.

    ``end``: the offset after the last batch. ``whole_from``: from there on the log has every offset. ``count``: of the
    key's records. ``opened``: the first offset of each producer's open transaction. ``epochs``: the first offset of
    each leader epoch, and the last one in this log.
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

    @property
    def newest_epoch(self) -> int:
        """The leader epoch of the last batch, or -1."""
        return max((epoch for epoch, (first, last) in self.epochs.items() if first <= last), default=-1)

    def read(self, file: Readable, source: str, *, may_be_cut: bool = False) -> None:
        """Read on. Raises `CorruptLogError`."""
        blocks = iter_blocks(file, source=source, is_last=may_be_cut)
        for block in until_cut(blocks) if may_be_cut else blocks:
            self.has_old_format |= len(block.skipped) > 0
            records = defaultdict(list)
            for index, record in _records_of(self.key, block):
                records[index].append(record)
            columns = (block.batches[name].tolist() for name in _COLUMNS)
            for index, batch in enumerate(zip(*columns, strict=True)):
                if batch[1] >= self.log_start:
                    self._add(batch, records.get(index, ()))

    def _add(self, batch: Sequence[Any], records: Sequence[KeyRecord]) -> None:
        first, last, count, attributes, producer, epoch, marker, horizon_ms = batch
        if first > self.end or count <= last - first:
            self.whole_from = last + 1
        self.end = last + 1
        self.epochs[epoch] = self.epochs.get(epoch, (first, 0))[0], last
        if attributes & CONTROL:
            if marker in range(len(MARKERS)):
                self.opened.pop(producer, None)
                for record in self._pending.pop(producer, ()):
                    record.outcome = COMMITTED if MARKERS[marker] == COMMIT else ABORTED
                    record.ended_at = last
            return
        if attributes & TRANSACTIONAL:
            self.opened.setdefault(producer, first)
        for record in records:
            if record.offset >= self.log_start:
                self.count += 1
                self.records.append(record)
                record.leader_epoch = epoch
                record.horizon_ms = horizon_ms if attributes & DELETE_HORIZON else None
                if attributes & TRANSACTIONAL:
                    record.producer_id, record.outcome = producer, OPEN
                    self._pending.setdefault(producer, deque(maxlen=MOST_RECORDS)).append(record)


def _records_of(key: bytes, block: Block) -> Iterator[tuple[int, KeyRecord]]:
    """Yield the block's records of the key, each with the index of its batch. Raises `CorruptLogError`."""
    from harness.broker_files.segments.fields import hash_fields  # noqa: PLC0415  (loads numba)

    wanted, size = np.empty(1, np.uint64), np.array([len(key)], np.int32)
    hash_fields(np.frombuffer(bytearray(key or b"-"), np.uint8), np.zeros(1, np.int32), size, wanted)
    for unpacked in unpack(block):
        data = unpacked.data
        for row in np.flatnonzero(key_hashes(unpacked) == wanted[0]).tolist():
            at, value_at = unpacked.key_at[row], unpacked.value_at[row]
            if unpacked.key_size[row] == len(key) and data[at : at + len(key)].tobytes() == key:
                value_size = unpacked.value_size[row]
                value = None if value_size < 0 else data[value_at : value_at + value_size].tobytes()
                record = KeyRecord(int(unpacked.offset[row]), int(unpacked.timestamp_ms[row]), value)
                yield int(unpacked.batch[row]), record


def read_copy(copy: ReplicaCopy, log: KeyLog) -> None:
    """Read a copied replica. Only its last segment may be cut. Raises `CorruptLogError` and OSError."""
    epochs = copy.folder / LEADER_EPOCHS
    if epochs.exists():
        starts = read_leader_epochs(epochs.read_bytes(), source=str(epochs))
        log.epochs = {epoch: (start, start - 1) for epoch, start in starts.items()}
    for path in copy.logs:
        with path.open("rb") as file:
            log.read(file, str(path), may_be_cut=path == copy.logs[-1])


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
