"""What a replica's files hold: its records, each with what its broker takes it for, and what is left of transactions.

A record counts as it does for a read_committed consumer there: hidden where the broker's ``.txnindex`` lists its
transaction as aborted (`AbortedTxn`), not yet served where no marker of its producer follows, committed else.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.broker_files.segments.batches import iter_batches, iter_records, marker
from harness.broker_files.segments.folder import live_segments
from harness.broker_files.side_files.producer_state import iter_txnindex
from harness.run_folder.history import HEADER_OP
from harness.run_folder.store import AFTER_REJOIN, BROKERS, STATE
from harness.soak.evidence.client_log import ABORTED, COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from harness.broker_files.segments.batches import Batch
    from harness.kafka_api.messages import TopicPartition
    from harness.run_folder.store import RunFolder

OPEN = "open"
Replica = tuple[int, "TopicPartition"]
"""A broker and a partition that it has a replica of."""


@dataclass(frozen=True)
class Held:
    """A record that a replica holds; ``belief``: committed, aborted or open, as its broker serves it."""

    write: int
    offset: int
    key: str
    is_delete: bool
    producer_id: int
    belief: str


@dataclass(frozen=True)
class Ended:
    """A transaction on a replica, or what is left of it: the offsets of a batch and of its marker there."""

    offset: int
    marker: int
    belief: str
    producer_id: int


@dataclass(frozen=True)
class ReplicaLog:
    """What a replica holds: its records; and its ended transactions, by batches, emptied or not, and ``.txnindex``.

    ``open_empty``: offset and producer id of batches that compaction has emptied and whose transaction is open here.
    Records below the log start are left out. ``stale_markers``: offsets, see `harness.soak.causes.stale_marker`.
    ``late_producers``: those with a batch of a former epoch, outside of transactions: a request that came so late that
    the broker had forgotten the producer. It rejects one else (``ProducerAppendInfo.checkProducerEpoch``).
    """

    records: Sequence[Held] = ()
    ended: Sequence[Ended] = ()
    open_empty: Sequence[tuple[int, int]] = ()
    log_start: int = 0
    stale_markers: frozenset[int] = frozenset()
    late_producers: frozenset[int] = frozenset()


def served_replicas(folder: RunFolder) -> Iterator[tuple[Replica, Path, dict[str, Any]]]:
    """Yield each replica of a round, the folder with its copy, and its ``state.json``: empty where it has none."""
    for path in sorted((folder.path / BROKERS).glob(f"*/{AFTER_REJOIN}/*/")):
        broker, (topic, _, partition) = int(path.parts[-3]), path.name.rpartition("-")
        served = folder.fetched_snapshot(broker, AFTER_REJOIN) / path.name / STATE
        yield (broker, (topic, int(partition))), path, json.loads(served.read_text()) if served.exists() else {}


def read_replica(folder: Path, log_start: int = 0) -> ReplicaLog:
    """Return every record of a partition's folder with what its broker takes it for."""
    segments = live_segments(folder).segments
    aborted = [
        entry
        for segment in segments
        if segment.txnindex
        for entry in iter_txnindex((folder / segment.txnindex).read_bytes(), source=segment.txnindex)
    ]
    batches = [
        batch for segment in segments for batch in iter_batches((folder / segment.log).read_bytes(), source=segment.log)
    ]
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

    data = [batch for batch in batches if not batch.is_control]
    records = [
        Held(
            int(dict(record.headers)[HEADER_OP] or 0),
            record.offset,
            (record.key or b"").decode(),
            record.value is None,
            batch.producer_id,
            belief(batch),
        )
        for batch in data
        for record in iter_records(batch, source=folder.name)
        if record.offset >= log_start
    ]
    ended = [
        Ended(batch.base_offset, end, belief(batch), batch.producer_id)
        for batch in data
        if batch.is_transactional and (end := end_of(batch)) is not None
    ]
    ended += [Ended(entry.first_offset, entry.last_offset, ABORTED, entry.producer_id) for entry in aborted]
    # What is left below the log start has lost its marker there, too.
    open_empty = [
        (b.last_offset, b.producer_id) for b in data if b.is_empty and b.last_offset >= log_start and belief(b) == OPEN
    ]
    stale = _behind(
        (batch.producer_id, control.coordinator_epoch, batch.last_offset)
        for batch, control in controls
        if control.coordinator_epoch is not None
    )
    late = _behind((one.producer_id, one.producer_epoch, one.producer_id) for one in data if not one.is_transactional)
    return ReplicaLog(records, ended, open_empty, log_start, frozenset(stale), frozenset(late))


def _behind(batches: Iterable[tuple[int, int, int]]) -> Iterator[int]:
    """Yield what stands for batches whose epoch is lower than an earlier one of their producer.

    ``batches``: producer id, epoch, and what stands for it.
    """
    newest: dict[int, int] = {}
    for producer_id, epoch, what in batches:
        before = newest.get(producer_id, epoch)
        if epoch < before:
            yield what
        newest[producer_id] = max(epoch, before)


def final_state(held: Iterable[Held]) -> dict[str, int]:
    """Return the write whose value a read_committed consumer ends with for each key that is not deleted."""
    last = {one.key: one for one in held if one.belief == COMMITTED}
    return {key: one.write for key, one in last.items() if not one.is_delete}
