"""A real broker's files of its replicas."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.brokers.segments.batches import CorruptLogError, iter_batches
from harness.brokers.segments.checkpoints import read_checkpoint, read_leader_epochs
from harness.brokers.segments.producer_snapshot import read_producer_snapshot
from harness.brokers.segments.txnindex import read_txnindex
from harness.conformance.picture import entry_of, horizons_of, states_of, stored_batch
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.conformance.picture import Entry, Named, ProducerState, StoredBatch
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
        batches=tuple(stored_batch(one, named) for one in batches),
        segments=tuple(int(path.stem) for path in logs),
        txnindex=tuple(
            entry_of(int(path.stem), one, named)
            for path in sorted(folder.glob("*.txnindex"))
            for one in read_txnindex(path.read_bytes(), source=path.name)
        ),
        cleaned_to=cleaned_to,
        epochs=tuple(sorted(read_leader_epochs(epochs.read_bytes(), source=EPOCHS).items())) if epochs.exists() else (),
        snapshots=tuple(
            (int(log.stem), _producers(snapshot, named))
            for log in logs[1:]
            if (snapshot := log.with_suffix(".snapshot")).exists()
        ),
        horizons_ms=horizons_of(batches),
    )


def _producers(snapshot: Path, named: Named) -> tuple[ProducerState, ...]:
    entries = read_producer_snapshot(snapshot.read_bytes(), source=snapshot.name)
    return states_of(
        ((one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_first_offset) for one in entries),
        named,
    )
