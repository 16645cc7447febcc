"""Literal logs as copies of brokers' log directories: the input of an audit.

A case is a few replicas of one partition, ``t-0``, each on a separate broker::

    write_copies(top, copy(1, put(0, "K"), END), copy(2, END))

Omitted values agree with the log: the high watermark is replicated to the shortest log's end, ``.txnindex``
files have what the log aborts, and the ids of nodes, cluster and topic fit. Producer snapshots and a checkpoint of
leader epochs exist where they are given.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from literal import TOPIC, Entry, Txn, aborted, encode, transactions

from harness.broker_files.copies.identity import META_PROPERTIES, PARTITION_METADATA
from harness.broker_files.internal_topics.decode import STATES
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import ABORT
from harness.broker_files.side_files import producer_state
from harness.broker_files.side_files.producer_state import AbortedTxn, ProducerEntry


@dataclass(frozen=True)
class Copy:
    """One broker's replica as it lies on its disk.

    ``rolled_at``: base offsets of the segments. ``snapshots``: by offset, each producer that the broker remembered
    then and the first offset of its open transaction. ``coordinator``: transactional id, producer id and state of each
    record in its ``__transaction_state-0``; without a producer id and state, a tombstone.
    """

    broker: int
    log: tuple[Entry, ...]
    rolled_at: tuple[int, ...] = (0,)
    checkpoints: bool = True
    log_start: int = 0
    high_watermark: int | None = None
    index: tuple[AbortedTxn, ...] | None = None
    snapshots: Mapping[int, Mapping[Txn, int | None]] = field(default_factory=dict)
    epochs: Mapping[int, int] | None = None
    coordinator: tuple[tuple[str, int | None, str | None], ...] = ()

    @property
    def log_end(self) -> int:
        """The offset after the last entry."""
        return max((entry.records[-1].offset + 1 for entry in self.log), default=self.log_start)


def copy(broker: int, *log: Entry, **fields: Any) -> Copy:
    """Return a replica; ``fields`` are those of `Copy`."""
    return Copy(broker, log, **fields)


def write_copies(top: Path, *copies: Copy) -> dict[int, list[Path]]:
    """Write a log directory for each replica below ``top``, and return them by broker."""
    replicated = min(replica.log_end for replica in copies)
    for replica in copies:
        _write(top / str(replica.broker), replica, replicated)
    return {replica.broker: [top / str(replica.broker)] for replica in copies}


def segment_name(base_offset: int, suffix: str = "log") -> str:
    return f"{base_offset:020}.{suffix}"


def _write(log_dir: Path, replica: Copy, replicated: int) -> None:
    folder = log_dir / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    (log_dir / META_PROPERTIES).write_text(f"version=1\nnode.id={replica.broker}\ncluster.id=literal\n")
    (folder / PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    _, ended = transactions(replica.log)
    index = [aborted(txn, first, last) for txn, kind, first, last in ended if kind == ABORT]
    _write_segments(folder, replica, index if replica.index is None else replica.index)
    for as_of, remembered in replica.snapshots.items():
        entries = [
            ProducerEntry(txn.producer_id, txn.epoch, -1, -1, 0, -1, 0, first) for txn, first in remembered.items()
        ]
        (folder / segment_name(as_of, "snapshot")).write_bytes(producer_state.encode_producer_snapshot(entries))
    if replica.epochs is not None:
        _write_lines(folder / "leader-epoch-checkpoint", [f"{epoch} {at}" for epoch, at in replica.epochs.items()])
    if replica.checkpoints:
        high_watermark = replicated if replica.high_watermark is None else replica.high_watermark
        for name, offset in (("replication-offset", high_watermark), ("log-start-offset", replica.log_start)):
            _write_lines(log_dir / f"{name}-checkpoint", [f"{TOPIC} 0 {offset}"])
    if replica.coordinator:
        states = log_dir / "__transaction_state-0"
        states.mkdir()
        (states / PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
        log = b"".join(
            encode_batch(base_offset=offset, records=[state_record(*state, offset=offset)])
            for offset, state in enumerate(replica.coordinator)
        )
        (states / segment_name(0)).write_bytes(log)


def _write_segments(folder: Path, replica: Copy, index: Sequence[AbortedTxn]) -> None:
    ends = (*replica.rolled_at[1:], 1 << 62)
    for base, end in zip(replica.rolled_at, ends, strict=True):
        batches = [entry for entry in replica.log if base <= entry.offset < end]
        (folder / segment_name(base)).write_bytes(encode(batches))
        mine = [entry for entry in index if base <= entry.last_offset < end]
        if mine:
            (folder / segment_name(base, "txnindex")).write_bytes(producer_state.encode_txnindex(mine))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    entries = list(lines)
    path.write_text("\n".join(["0", str(len(entries)), *entries]) + "\n")


def state_record(
    transactional_id: str, producer_id: int | None, state: str | None, *, version: int = 0, offset: int = 0
) -> Record:
    """Return a record of ``__transaction_state``; without producer id and state, a tombstone."""
    name = transactional_id.encode()
    value = None
    if producer_id is not None and state is not None:
        # No partitions, and when it was last updated and started (``TransactionLogValue``, version 0).
        value = struct.pack(">hqhibiqq", version, producer_id, 0, 60_000, STATES.index(state), -1, 0, 0)
    return Record(offset, 0, struct.pack(">hh", 0, len(name)) + name, value)
