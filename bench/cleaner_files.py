"""Files of the logs of `cleaner_passes`: reading them, and changing them as an old broker or a crash does."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.broker_files.segments.batches import Batch, iter_batches, iter_records
from harness.broker_files.side_files.checkpoints import read_leader_epochs
from harness.broker_files.side_files.producer_state import AbortedTxn, iter_txnindex
from harness.models.log.batch import ModelBatch

FILES: Final = (".log", ".index", ".timeindex", ".txnindex")
"""Of a segment."""
TEMPORARY: Final = frozenset({".deleted", ".cleaned", ".swap"})
TIME_ENTRY: Final = struct.Struct(">qi")
"""Timestamp and relative offset (``TimeIndex``)."""
OFFSET_ENTRY_BYTES: Final = 8
INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of ``index.interval.bytes``."""


@dataclass(frozen=True)
class StoredSegment:
    """A segment as read from its files."""

    base_offset: int
    stored: list[Batch]
    batches: list[ModelBatch]
    aborted: list[AbortedTxn]
    time_index: int
    """The inode: a pass and a split write a new file."""
    last_indexed_ms: int | None


def read_segment(folder: Path, base: int) -> StoredSegment:
    """Read the files of a segment."""
    path = folder / f"{base:020d}"
    batches = list(iter_batches(path.with_suffix(".log").read_bytes(), source=str(path)))
    index = path.with_suffix(".txnindex")
    aborted = list(iter_txnindex(index.read_bytes(), source=str(index))) if index.exists() else []
    time_index = path.with_suffix(".timeindex")
    # The file of the active segment has room for more entries.
    last_ms = max((ms for ms, _ in TIME_ENTRY.iter_unpack(time_index.read_bytes())), default=None)
    return StoredSegment(base, batches, list(map(as_model, batches)), aborted, time_index.stat().st_ino, last_ms)


def as_model(batch: Batch) -> ModelBatch:
    """Return a stored batch as a batch of the model."""
    records = tuple(iter_records(batch, source="a segment"))
    return ModelBatch(batch.base_offset, batch.last_offset, records, batch.max_timestamp_ms, batch.leader_epoch,
                      batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional,
                      batch.is_control, batch.codec, delete_horizon_ms=batch.delete_horizon_ms)  # fmt: skip


def merge(folder: Path) -> set[int]:
    """Append all segments but the last to the first. Returns the inodes of time indexes without entries."""
    *inactive, active = sorted(folder.glob("*.log"))
    emptied = {empty_indexes(active)}
    if not inactive:
        return emptied
    files = joined(inactive)
    remove(inactive)
    for suffix, content in files.items():
        inactive[0].with_suffix(suffix).write_bytes(content)
    return emptied | {empty_indexes(inactive[0])}


def begin_swap(paths: Sequence[Path], renamed: int) -> None:
    """Leave the files of segments as a crash leaves them while one cleaned segment replaces them: see `Restart`."""
    files = joined(paths)
    if renamed >= 0:
        remove(paths)
    for number, (suffix, content) in enumerate(files.items()):
        final = suffix if number < renamed else f"{suffix}.swap"
        paths[0].with_suffix(final).write_bytes(content)


def joined(paths: Sequence[Path]) -> dict[str, bytes]:
    """Return the files of a segment with the content of several ones; its indexes have no entries."""
    index = b"".join(it.read_bytes() for path in paths if (it := path.with_suffix(".txnindex")).exists())
    content = {".log": b"".join(path.read_bytes() for path in paths), ".index": b"", ".timeindex": b""}
    return content | ({".txnindex": index} if index else {})


def remove(paths: Iterable[Path]) -> None:
    """Remove the files of segments."""
    for path in paths:
        for suffix in FILES:
            path.with_suffix(suffix).unlink(missing_ok=True)


def temporary_files(folder: Path) -> set[tuple[str, int]]:
    """Return the name and inode of each file that only a cleaner, a split or a deletion leaves."""
    return {(path.name, path.stat().st_ino) for path in folder.iterdir() if path.suffix in TEMPORARY}


def read_epochs(folder: Path) -> dict[int, int]:
    """Return the first offset by leader epoch, of ``leader-epoch-checkpoint``."""
    path = folder / "leader-epoch-checkpoint"
    return read_leader_epochs(path.read_bytes(), source=str(path)) if path.exists() else {}


def empty_indexes(path: Path) -> int:
    """Let a segment have indexes without entries: such a segment needs no recovery, and is read from its begin.

    Returns the inode of the time index.
    """
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).write_bytes(b"")
    return path.with_suffix(".timeindex").stat().st_ino


def index_bytes_to_recover(segments: Iterable[StoredSegment]) -> int:
    """Return the smallest ``segment.index.bytes`` with which segments can be recovered (``LogSegment.recover``)."""
    needed = OFFSET_ENTRY_BYTES
    for segment in segments:
        entries = time_entries = position = indexed = 0
        latest_ms = indexed_ms = -1
        room = 1
        for batch in segment.stored:
            latest_ms = max(latest_ms, batch.max_timestamp_ms)
            if position - indexed > INDEX_INTERVAL_BYTES:
                entries, room, indexed = entries + 1, max(room, time_entries + 2), position
                time_entries += latest_ms > indexed_ms
                indexed_ms = latest_ms
            position += batch.size_bytes
        needed = max(needed, TIME_ENTRY.size * room, OFFSET_ENTRY_BYTES * entries)
    return needed
