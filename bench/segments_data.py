"""Replicas of one big compacted partition, as brokers would hold them: the data that checkers are timed on.

Producers write transactions batch by batch in turns, some aborted. A replica is such a log in one of three states of
cleaning, each of which a broker may be in, or diverged:

- ``never``: as written;
- ``half``: one pass over the first half of its segments. Superseded values and aborted data are gone; tombstones and
  markers are kept, the former's batches with a delete horizon; what was emptied is gone;
- ``full``: passes over all but the active segment until there was nothing left to do. Tombstones are gone too, and
  markers of whose transaction nothing is left;
- ``missed``: as written, but without the COMMIT of one transaction: the producer's next marker is an ABORT.

Offsets never change, a batch keeps its first and last offset, and a producer's last batch stays, if need be without
records (``Cleaner.cleanSegments``, ``MemoryRecords.filterTo``; see also ``CleanedTransactionMetadata``).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from crc32c import crc32c
from numba import boolean, int64

from harness.broker_files.segments.batches import CRC_FROM, DELETE_HORIZON, HEADER, LOG_OVERHEAD, MAGIC, TRANSACTIONAL
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.jit import BYTES, compiled
from harness.broker_files.segments.records import ABORT, COMMIT, marker_record
from harness.broker_files.side_files.producer_state import (
    AbortedTxn,
    ProducerEntry,
    encode_producer_snapshot,
    encode_txnindex,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

State = Literal["never", "half", "full", "missed"]

TOPIC = "bench"
START_MS = 1_700_000_000_000
HORIZON_MS = START_MS + 86_400_000
RECORDS_PER_MS = 8
KEY_BYTES, VALUE_BYTES = 10, 100
_RECORD_BYTES = 128  # no record takes more
_DONE = "done.json"
_NONE = -1


@dataclass(frozen=True)
class Shape:
    """The generated data. The defaults are those of the issue; batches have about 16 KiB."""

    records: int = 4_000_000
    keys: int = 1_000_000
    records_per_transaction: int = 5_000
    aborted: float = 0.1
    tombstones: float = 0.02
    producers: int = 4
    records_per_batch: int = 136
    segment_bytes: int = 64 << 20
    seed: int = 0


class Batch(NamedTuple):
    """One batch as written: its records are ``[first, first + record_count)`` of `Log`'s arrays; a marker has none."""

    base_offset: int
    first: int
    record_count: int
    producer: int
    sequence: int
    transaction: int
    segment: int
    commits: bool | None
    """The outcome that a marker decides; None for data."""


@dataclass(frozen=True)
class Log:
    """The log as written. Arrays have an element a record, or a transaction."""

    batches: list[Batch]
    offset: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    is_tombstone: npt.NDArray[np.bool_]
    transaction: npt.NDArray[np.int64]
    is_committed: npt.NDArray[np.bool_]
    segments: list[int]
    """Base offsets."""


def write_replicas(folder: Path, shape: Shape, states: Sequence[State]) -> list[Path]:
    """Write a log directory a replica, ``folder/1`` and so on, and return them; at once if they are there.

    Each has a folder ``bench-0`` and checkpoints. Equal states are copies of equal bytes.
    """
    wanted = {"shape": asdict(shape), "states": list(states)}
    done = folder / _DONE
    replicas = [folder / str(number) for number in range(1, len(states) + 1)]
    if done.exists() and json.loads(done.read_text()) == wanted:
        return replicas
    shutil.rmtree(folder, ignore_errors=True)
    log = plan(shape)
    written: dict[State, Path] = {}
    for state, replica in zip(states, replicas, strict=True):
        if state in written:
            shutil.copytree(written[state], replica)
        else:
            _write_replica(replica, log, state)
            written[state] = replica
    done.write_text(json.dumps(wanted))
    return replicas


def plan(shape: Shape) -> Log:
    """Draw the records and their places."""
    rng = np.random.default_rng(shape.seed)
    batches: list[Batch] = []
    segments = [0]
    outcomes: list[bool] = []
    running = [_NONE] * shape.producers
    written = [0] * shape.producers
    sequences = [0] * shape.producers
    offset = first = segment_bytes = 0
    while first < shape.records or any(transaction != _NONE for transaction in running):
        producer = int(rng.integers(shape.producers))
        transaction = running[producer]
        ends = transaction != _NONE and (written[producer] == shape.records_per_transaction or first == shape.records)
        if not ends and first == shape.records:
            continue
        if transaction == _NONE:
            transaction = running[producer] = len(outcomes)
            written[producer] = 0
            outcomes.append(bool(rng.random() >= shape.aborted))
        room = shape.records_per_transaction - written[producer]
        count = 0 if ends else min(shape.records_per_batch, room, shape.records - first)
        if segment_bytes > shape.segment_bytes:
            segments.append(offset)
            segment_bytes = 0
        decided = outcomes[transaction] if ends else None
        batches.append(
            Batch(offset, first, count, producer, sequences[producer], transaction, len(segments) - 1, decided)
        )
        written[producer] += count
        sequences[producer] += count
        first += count
        offset += max(count, 1)
        segment_bytes += HEADER.size + count * (KEY_BYTES + VALUE_BYTES + 10)
        if ends:
            running[producer] = _NONE
    counts = [batch.record_count for batch in batches]
    starts = np.repeat([batch.base_offset - batch.first for batch in batches], counts)
    return Log(
        batches=batches,
        offset=np.arange(shape.records) + starts,
        key=rng.integers(shape.keys, size=shape.records),
        is_tombstone=rng.random(shape.records) < shape.tombstones,
        transaction=np.repeat([batch.transaction for batch in batches], counts),
        is_committed=np.array(outcomes, np.bool_),
        segments=segments,
    )


def log_end(log: Log) -> int:
    """Return the offset after the last."""
    last = log.batches[-1]
    return last.base_offset + max(last.record_count, 1)


# Cleaning


class Cleaned(NamedTuple):
    """What a state keeps of the log below ``end``, the first offset that the cleaner has not reached."""

    end: int
    kept: npt.NDArray[np.bool_]
    """Of `Log`'s records."""
    horizon: bool
    """True if tombstones exist, and their batches have a delete horizon."""
    markers: bool
    """True if all markers exist; otherwise, only markers of transactions with a batch left do."""


def clean(log: Log, state: State) -> Cleaned:
    """Return what a state keeps."""
    end = {"never": 0, "missed": 0, "half": log.segments[len(log.segments) // 2], "full": log.segments[-1]}[state]
    below = log.offset < end
    committed = below & log.is_committed[log.transaction]
    newest = np.full(int(log.key.max()) + 1, -1)
    np.maximum.at(newest, log.key[committed], log.offset[committed])
    kept = ~below | (committed & (newest[log.key] == log.offset))
    if state == "full":
        kept &= ~(below & log.is_tombstone)
    return Cleaned(end, kept, horizon=state == "half", markers=state != "full")


# Writing


def _write_replica(folder: Path, log: Log, state: State) -> None:
    cleaned = clean(log, state)
    partition = folder / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    missed = _missed(log) if state == "missed" else None
    aborted = _aborted(log, missed)
    files: list[bytearray] = [bytearray() for _ in log.segments]
    indexes: list[list[AbortedTxn]] = [[] for _ in log.segments]
    for batch, encoded in _encoded(log, cleaned):
        if batch.base_offset == missed:
            continue
        files[batch.segment] += encoded
        if batch.commits is False:
            indexes[batch.segment].append(aborted[batch.base_offset])
    for base_offset, data, entries in zip(log.segments, files, indexes, strict=True):
        (partition / f"{base_offset:020}.log").write_bytes(data)
        (partition / f"{base_offset:020}.txnindex").write_bytes(encode_txnindex(entries))
    snapshot = encode_producer_snapshot(_producers(log))
    (partition / f"{log_end(log):020}.snapshot").write_bytes(snapshot)
    for name, offset in (
        ("replication-offset", log_end(log)),
        ("recovery-point-offset", log_end(log)),
        ("cleaner-offset", cleaned.end),
    ):
        (folder / f"{name}-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {offset}\n")


def _encoded(log: Log, cleaned: Cleaned) -> Iterator[tuple[Batch, memoryview | bytes]]:
    """Yield the batches that are left, in order."""
    last_of_producer = {batch.producer: batch.base_offset for batch in log.batches if batch.record_count}
    scratch = np.empty(HEADER.size + max(batch.record_count for batch in log.batches) * _RECORD_BYTES, np.uint8)
    with_batches: set[int] = set()
    for batch in log.batches:
        if batch.commits is not None:
            if cleaned.markers or batch.base_offset >= cleaned.end or batch.transaction in with_batches:
                yield batch, _marker(batch)
            continue
        rows = np.flatnonzero(cleaned.kept[batch.first : batch.first + batch.record_count]) + batch.first
        if len(rows) or last_of_producer[batch.producer] == batch.base_offset:
            with_batches.add(batch.transaction)
            has_horizon = batch.base_offset < cleaned.end and cleaned.horizon and bool(log.is_tombstone[rows].any())
            yield batch, _encode(scratch, batch, log, rows, has_horizon=has_horizon)


def _marker(batch: Batch) -> bytes:
    kind, base = COMMIT if batch.commits else ABORT, batch.base_offset
    return encode_batch(
        base_offset=base,
        records=[marker_record(base, _timestamp_ms(base), kind)],
        producer_id=batch.producer,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def _encode(
    scratch: npt.NDArray[np.uint8], batch: Batch, log: Log, rows: npt.NDArray[np.intp], *, has_horizon: bool
) -> memoryview:
    """Encode the records of some rows into ``scratch``."""
    offsets = log.offset[rows]
    base_ms = HORIZON_MS if has_horizon else _timestamp_ms(int(offsets[0])) if len(rows) else -1
    end = encode_records(
        scratch, HEADER.size, batch.base_offset, base_ms, offsets, log.key[rows], log.is_tombstone[rows]
    )
    HEADER.pack_into(
        scratch.data,
        0,
        batch.base_offset,
        end - LOG_OVERHEAD,
        0,
        MAGIC,
        0,
        TRANSACTIONAL | (DELETE_HORIZON if has_horizon else 0),
        batch.record_count - 1,
        base_ms,
        _timestamp_ms(int(offsets[-1]) if len(rows) else batch.base_offset + batch.record_count - 1),
        batch.producer,
        0,
        batch.sequence,
        len(rows),
    )
    view = scratch.data[:end]
    view[CRC_FROM - 4 : CRC_FROM] = crc32c(view[CRC_FROM:]).to_bytes(4)
    return view


def _timestamp_ms(offset: int) -> int:
    return START_MS + offset // RECORDS_PER_MS


@compiled(int64(BYTES, int64, int64))
def _put_varint(out: Any, at: int, value: int) -> Any:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:  # noqa: PLR2004
        out[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1


@compiled(int64(BYTES, int64, int64, int64, int64[::1], int64[::1], boolean[::1]))
def encode_records(  # noqa: PLR0917
    out: Any, at: int, base_offset: int, base_ms: int, offsets: Any, keys: Any, tombstones: Any
) -> Any:
    """Write records from ``at`` on and return where they end.

    A key is a letter and nine digits. A value is noise made from the offset: the same on every replica.
    """
    for i in range(len(offsets)):
        # The length comes first and is known last: two bytes are left for it, one where the record is short.
        start = at + (1 if tombstones[i] else 2)
        out[start] = 0
        after = _put_varint(out, start + 1, START_MS + offsets[i] // RECORDS_PER_MS - base_ms)
        after = _put_varint(out, after, offsets[i] - base_offset)
        after = _put_varint(out, after, KEY_BYTES)
        out[after] = 107
        digits = keys[i]
        for j in range(KEY_BYTES - 1, 0, -1):
            out[after + j] = 48 + digits % 10
            digits //= 10
        after += KEY_BYTES
        if tombstones[i]:
            after = _put_varint(out, after, -1)
        else:
            after = _put_varint(out, after, VALUE_BYTES)
            noise = offsets[i] * 2654435761 + 1
            for j in range(VALUE_BYTES):
                noise = (noise * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
                out[after + j] = (noise >> 40) & 0xFF
            after += VALUE_BYTES
        after = _put_varint(out, after, 0)
        _put_varint(out, at, after - start)
        at = after
    return at


def _missed(log: Log) -> int:
    """Return the offset of the first COMMIT in the second half whose producer aborts its next transaction."""
    markers = [batch for batch in log.batches[len(log.batches) // 2 :] if batch.commits is not None]
    following: dict[int, Batch] = {}
    candidates = []
    for batch in reversed(markers):
        if batch.commits and batch.producer in following and not following[batch.producer].commits:
            candidates.append(batch.base_offset)
        following[batch.producer] = batch
    return candidates[-1]


def _aborted(log: Log, missed: int | None) -> dict[int, AbortedTxn]:
    """Return a broker's transaction index by offset of the marker; the broker never had the marker at ``missed``."""
    opened: dict[int, int] = {}
    aborted = {}
    for batch in log.batches:
        if batch.commits is None:
            opened.setdefault(batch.producer, batch.base_offset)
        elif batch.base_offset != missed:
            first_offset = opened.pop(batch.producer)
            if not batch.commits:
                stable = min(opened.values(), default=batch.base_offset + 1)
                aborted[batch.base_offset] = AbortedTxn(batch.producer, first_offset, batch.base_offset, stable)
    return aborted


def _producers(log: Log) -> list[ProducerEntry]:
    """Return what a broker remembers when it shuts down after the last batch: every transaction has ended."""
    last = {batch.producer: batch for batch in log.batches if batch.record_count}
    ended = {batch.producer: batch for batch in log.batches if not batch.record_count}
    return [
        ProducerEntry(
            producer_id=producer,
            producer_epoch=0,
            last_sequence=batch.sequence + batch.record_count - 1,
            last_offset=batch.base_offset + batch.record_count - 1,
            offset_delta=batch.record_count - 1,
            timestamp_ms=_timestamp_ms(ended[producer].base_offset),
            coordinator_epoch=0,
            current_txn_first_offset=None,
        )
        for producer, batch in sorted(last.items())
    ]
