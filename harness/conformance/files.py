"""A real broker's files of its replicas."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.brokers.segments.batches import CorruptLogError, iter_batches, iter_records, marker
from harness.brokers.segments.checkpoints import read_checkpoint, read_leader_epochs
from harness.brokers.segments.producer_snapshot import read_producer_snapshot
from harness.brokers.segments.txnindex import iter_txnindex
from harness.conformance.picture import DATA, EMPTIED, Entry, ProducerState, StoredBatch, name_of, record_text
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.brokers.segments.batches import Batch
    from harness.conformance.picture import Named
    from harness.runtimes.base import Runtime

CLEANED, EPOCHS = "cleaner-offset-checkpoint", "leader-epoch-checkpoint"


@dataclass(frozen=True)
class Files:
    """The files of one replica; fields as in `harness.conformance.picture.Picture`."""

    batches: tuple[StoredBatch, ...]
    segments: tuple[int, ...]
    txnindex: tuple[Entry, ...]
    cleaned_to: int | None
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, tuple[ProducerState, ...]], ...]
    horizons_ms: tuple[tuple[int, int], ...]


def read_files(
    runtime: Runtime, broker: int, topics: Sequence[str], named: Mapping[str, Named], scratch: Path
) -> dict[str, Files]:
    """Copy a broker's folders of these topics, and read them; a folder that is just being changed is left out."""
    folder = scratch / str(broker)
    files_by_topic = {}
    runtime.copy_checkpoints(broker, folder)
    try:
        path = folder / CLEANED
        cleaned = read_checkpoint(path.read_bytes(), source=path.name) if path.exists() else {}
        for topic in topics:
            copied = folder / topic
            try:
                runtime.copy_partition(broker, topic, 0, copied)
                files_by_topic[topic] = read_folder(copied, named[topic], cleaned.get((topic, 0)))
            except (HarnessError, CorruptLogError):
                continue
    finally:
        shutil.rmtree(folder)
    return files_by_topic


def read_folder(folder: Path, named: Named, cleaned_to: int | None) -> Files:
    """Read a partition's folder. Raises `CorruptLogError`."""
    logs = sorted(folder.glob("*.log"))
    batches = [one for path in logs for one in iter_batches(path.read_bytes(), source=path.name)]
    epochs = folder / EPOCHS
    return Files(
        batches=tuple(_stored_batch(one, named) for one in batches),
        segments=tuple(int(path.stem) for path in logs),
        txnindex=tuple(_entries(folder, named)),
        cleaned_to=cleaned_to,
        epochs=tuple(sorted(read_leader_epochs(epochs.read_bytes(), source=EPOCHS).items())) if epochs.exists() else (),
        snapshots=tuple(_snapshots(folder, [int(path.stem) for path in logs[1:]], named)),
        horizons_ms=tuple(
            (one.base_offset, one.delete_horizon_ms) for one in batches if one.delete_horizon_ms is not None
        ),
    )


def _entries(folder: Path, named: Named) -> Iterator[Entry]:
    for path in sorted(folder.glob("*.txnindex")):
        for one in iter_txnindex(path.read_bytes(), source=path.name):
            name = name_of(one.producer_id, named)
            yield Entry(int(path.stem), name, one.first_offset, one.last_offset, one.last_stable_offset)


def _snapshots(folder: Path, offsets: Sequence[int], named: Named) -> Iterator[tuple[int, tuple[ProducerState, ...]]]:
    for offset in offsets:
        path = folder / f"{offset:020d}.snapshot"
        if path.exists():
            entries = read_producer_snapshot(path.read_bytes(), source=path.name)
            yield (
                offset,
                tuple(
                    sorted(
                        ProducerState(
                            name_of(one.producer_id, named),
                            one.producer_epoch,
                            one.last_sequence,
                            one.current_txn_first_offset,
                        )
                        for one in entries
                        if one.producer_epoch >= 0
                    )
                ),
            )


def _stored_batch(batch: Batch, named: Named) -> StoredBatch:
    control = marker(batch, source="a segment")
    records = () if batch.is_control else iter_records(batch, source="a segment")
    return StoredBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        kind=control.type if control else EMPTIED if batch.is_control else DATA,
        records=tuple(record_text(one.offset, one.key, is_deleted=one.value is None) for one in records),
        leader_epoch=batch.leader_epoch,
        producer=name_of(batch.producer_id, named),
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        has_horizon=batch.delete_horizon_ms is not None,
    )
