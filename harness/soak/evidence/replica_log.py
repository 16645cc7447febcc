"""The records in the files of a replica, each as its broker serves it, and the remains of transactions.

A record counts as it does for a read_committed consumer there: hidden where the broker's ``.txnindex`` lists its
transaction as aborted (`AbortedTxn`), not yet served where no marker of its producer follows, committed else.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from harness.broker_files.segments.batches import Batch, Record, iter_records, marker
from harness.broker_files.segments.folder import batches_in, live_segments
from harness.broker_files.side_files.producer_state import iter_txnindex
from harness.kafka_api import TopicPartition, partition_named
from harness.run_folder.history import HEADER_OP
from harness.run_folder.store import AFTER_REJOIN, BROKERS, STATE, RunFolder
from harness.soak.evidence.client_log import ABORTED, COMMITTED

OPEN = "open"
Replica: TypeAlias = "tuple[int, TopicPartition]"
"""A broker and a partition that it has a replica of."""


@dataclass(frozen=True)
class StoredRecord:
    """A record in a replica's log; ``belief``: committed, aborted or open, as its broker serves it."""

    write: int
    offset: int
    key: str
    is_delete: bool
    producer_id: int
    belief: str


@dataclass(frozen=True)
class EndedTransaction:
    """A transaction in a replica's log, or its remains: the offsets of a batch and of its marker there."""

    offset: int
    marker: int
    belief: str
    producer_id: int


@dataclass(frozen=True)
class ReplicaLog:
    """The log of a replica: its records; and its ended transactions, by batches, emptied or not, and ``.txnindex``.

    ``open_empty``: offset and producer id of batches that compaction has emptied and whose transaction is open here.
    Records below the log start are left out. ``stale_markers``: offsets, see `harness.soak.causes.stale_marker`.
    ``late_producers``: those with a batch of a former epoch, outside of transactions: a request that came so late that
    the broker had forgotten the producer. It rejects such a batch else (``ProducerAppendInfo.checkProducerEpoch``).
    """

    records: Sequence[StoredRecord] = ()
    ended: Sequence[EndedTransaction] = ()
    open_empty: Sequence[tuple[int, int]] = ()
    log_start: int = 0
    stale_markers: frozenset[int] = frozenset()
    late_producers: frozenset[int] = frozenset()


def served_replicas(folder: RunFolder) -> Iterator[tuple[Replica, Path, dict[str, Any]]]:
    """Yield each replica of a round, the folder with its copy, and its ``state.json``: empty where that is missing."""
    for path in sorted((folder.path / BROKERS).glob(f"*/{AFTER_REJOIN}/*/")):
        broker = int(path.parts[-3])
        served = folder.fetched_snapshot(broker, AFTER_REJOIN) / path.name / STATE
        yield (broker, partition_named(path.name)), path, json.loads(served.read_text()) if served.exists() else {}


def read_replica(folder: Path, log_start: int = 0) -> ReplicaLog:
    """Return the log of a replica from the files of its partition's folder."""
    aborted = [
        entry
        for segment in live_segments(folder).segments
        if segment.txnindex
        for entry in iter_txnindex((folder / segment.txnindex).read_bytes(), source=segment.txnindex)
    ]
    batches = list(batches_in(folder))
    data = [batch for batch in batches if not batch.is_control]
    controls = [(batch, control) for batch in batches if (control := marker(batch, source=folder.name)) is not None]
    markers: dict[int, list[int]] = defaultdict(list)
    for batch, _ in controls:
        markers[batch.producer_id].append(batch.last_offset)

    def end_of(batch: Batch) -> int | None:
        return next((end for end in markers[batch.producer_id] if end > batch.base_offset), None)

    def belief(batch: Batch) -> str:
        if not batch.is_transactional:
            return COMMITTED
        offset = batch.base_offset
        if any(e.producer_id == batch.producer_id and e.first_offset <= offset <= e.last_offset for e in aborted):
            return ABORTED
        return OPEN if end_of(batch) is None else COMMITTED

    def stored(batch: Batch, record: Record) -> StoredRecord:
        write, key = int(dict(record.headers)[HEADER_OP] or 0), (record.key or b"").decode()
        return StoredRecord(write, record.offset, key, record.value is None, batch.producer_id, belief(batch))

    records = [stored(b, r) for b in data for r in iter_records(b, source=folder.name) if r.offset >= log_start]
    ended = [
        EndedTransaction(b.base_offset, end, belief(b), b.producer_id)
        for b in data
        if b.is_transactional and (end := end_of(b)) is not None
    ]
    ended += [EndedTransaction(e.first_offset, e.last_offset, ABORTED, e.producer_id) for e in aborted]
    # A transaction below the log start has lost its marker there, too.
    remains = [b for b in data if b.is_empty and b.last_offset >= log_start and belief(b) == OPEN]
    open_empty = [(b.last_offset, b.producer_id) for b in remains]
    stale = _outdated((batch.producer_id, control.coordinator_epoch, batch.last_offset) for batch, control in controls)
    late = _outdated((b.producer_id, b.producer_epoch, b.producer_id) for b in data if not b.is_transactional)
    return ReplicaLog(records, ended, open_empty, log_start, stale, late)


def _outdated(batches: Iterable[tuple[int, int | None, int]]) -> frozenset[int]:
    """Return values of (producer id, epoch or None, value) with an epoch below an earlier one of the producer."""
    newest: dict[int, int] = {}
    outdated = set()
    for producer_id, epoch, value in batches:
        if epoch is not None:
            if epoch < newest.setdefault(producer_id, epoch):
                outdated.add(value)
            newest[producer_id] = max(epoch, newest[producer_id])
    return frozenset(outdated)


def final_state(records: Iterable[StoredRecord]) -> dict[str, int]:
    """Return the write whose value a read_committed consumer ends with for each key that is not deleted."""
    last = {record.key: record for record in records if record.belief == COMMITTED}
    return {key: record.write for key, record in last.items() if not record.is_delete}
