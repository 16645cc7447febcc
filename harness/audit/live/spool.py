"""Reads replicas from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

The bound of a partition is fixed before anything is read: an offset that every replica has by then. Every replica is
read to the bound. Only then is each read further, to the high watermark that any replica of the partition has by now,
and is its broker asked for its state. So whatever a cleaner knew when it removed a record that another replica still
has, that other replica shows it.

``state.json`` is the state of a snapshot (`harness.cluster.snapshot`) with the fields ``bound``, ``read_from``,
``read_to`` and ``listed_to`` of `ReplicaReading`, and ``complete``: whether the replica was read to its end, which
includes everything before its state was asked. Nothing is committed, joined, created or moved.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.live.broker_reports import ReplicaStatus, ReplicaStatuses, TransactionDescriptions, replica_statuses
from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.audit.live.pieces import PIECE_BYTES, Pieces, SpoolDiskError, raise_if_full
from harness.audit.live.rate_limit import RateLimit
from harness.audit.live.reading import BrokerReader, ReplicaReading, Write, open_reader
from harness.audit.live.spans import Span
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.segments.folder import Segment, live_segments
from harness.cluster.snapshot import write_state
from harness.errors import HarnessError, TimeLimitError
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.topics import describe_log_dirs
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR, RunFolder

if TYPE_CHECKING:
    from harness.audit.live.executors import ExecutorReader, StoredReplica

Replica: TypeAlias = "tuple[int, TopicPartition]"


@dataclass(frozen=True)
class SpoolOptions:
    """``limit`` for all brokers together, and ``spans``: the parts to read of partitions that are not read completely.

    ``on_progress`` is called with the fraction and the number of bytes that were read so far. ``executors`` read and
    store the batches, without progress; by default, this process does, in files.
    """

    limit: RateLimit | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    on_progress: Callable[[float, int], None] = lambda _fraction, _bytes: None
    piece_bytes: int = PIECE_BYTES
    executors: ExecutorReader | None = None


@dataclass(frozen=True)
class SpoolResult:
    """The readings by replica, and why other replicas failed; the folders of the latter are removed.

    ``stored``: the segments that executors store, by replica.
    """

    readings: Mapping[Replica, ReplicaReading]
    failures: Mapping[Replica, str]
    stored: Mapping[Replica, StoredReplica] = field(default_factory=dict)


def spool(
    cluster: AuditedCluster,
    statuses: ReplicaStatuses,
    folder: RunFolder,
    options: SpoolOptions,
    replicas: Collection[Replica] | None = None,
) -> SpoolResult:
    """Read these replicas, or all in ``statuses``, all brokers in parallel.

    A replica without a status is among the failures, with the reason. To read differing replicas again, the caller
    passes another folder and ``replicas``.

    Raises `SpoolDiskError` where they do not fit on the disk, and `TimeLimitError`.
    """
    unread = dict(statuses.unseen)
    for broker, why in statuses.silent.items():
        unread |= {(broker, tp): why for tp in cluster.state.replicas_by_broker[broker]}
    replicas = {*unread, *statuses.replicas} if replicas is None else replicas
    failures = {replica: why for replica, why in unread.items() if replica in replicas}
    seen = {replica: status for replica, status in statuses.replicas.items() if replica in replicas}
    bounds = {tp: bound_of(statuses.by_partition[tp].values()) for _, tp in seen}
    spans = {}
    for replica, status in seen.items():
        limits = options.spans.get(replica[1], Span(status.log_start))
        spans[replica] = Span(max(limits.start, status.log_start), limits.stop)
    folder.path.mkdir(parents=True, exist_ok=True)
    lengths = {replica: _length(seen[replica], span) for replica, span in spans.items()}
    readings = {
        replica: ReplicaReading(
            replica[1], span, bounds[replica[1]] if span.stop is None else min(bounds[replica[1]], span.stop)
        )
        for replica, span in sorted(spans.items())
    }
    stored: Mapping[Replica, StoredReplica] = {}
    try:
        if readings and options.executors is not None:
            readings, stored = options.executors.read(cluster, readings)
        else:
            sizes = _sizes(cluster, statuses, lengths)
            raise_if_full(folder.path, sum(sizes.values()))
            progress = ReadingProgress(sizes, lengths, options)
            for replica, reading in readings.items():
                reading.write = _writer(_replica_folder(folder, replica), reading.span.start, progress)
            with ExitStack() as stack:
                read_all(cluster, readings, progress, stack)
        for replica, reading in readings.items():
            if reading.failure is None and reading.state is not None:
                _store_state(_replica_folder(folder, replica), reading)
    except BaseException:
        for replica in readings:
            shutil.rmtree(_replica_folder(folder, replica), ignore_errors=True)
        raise
    failures |= {replica: reading.failure for replica, reading in readings.items() if reading.failure is not None}
    for replica in failures:
        shutil.rmtree(_replica_folder(folder, replica), ignore_errors=True)
    return SpoolResult({r: reading for r, reading in readings.items() if reading.failure is None}, failures, stored)


def bound_of(replicas: Collection[ReplicaStatus]) -> int:
    """Return the offset up to which every replica of a partition has each committed record, or has cleaned it."""
    ends = (status.high_watermark if status.log_end is None else status.log_end for status in replicas)
    return min(*ends, max(status.high_watermark for status in replicas))


def read_all(
    cluster: AuditedCluster, readings: Mapping[Replica, ReplicaReading], progress: ReadingProgress, stack: ExitStack
) -> None:
    """Read to the bounds on all brokers; then on all brokers to the high watermarks, and ask for the states.

    ``stack`` closes the connections. A replica that cannot be read gets a ``failure``.
    """
    by_broker: dict[int, list[ReplicaReading]] = {}
    for (broker, _), reading in readings.items():
        by_broker.setdefault(broker, []).append(reading)
    readers: dict[int, BrokerReader] = {}

    def on_all(step: Callable[[BrokerReader, Iterable[ReplicaReading]], Iterable[None]]) -> None:
        with ThreadPoolExecutor(max(len(by_broker), 1)) as pool:
            try:
                list(pool.map(lambda broker: attempt(broker, step), by_broker))
            except BaseException:
                progress.is_over.set()
                raise

    def attempt(broker: int, step: Callable[[BrokerReader, Iterable[ReplicaReading]], Iterable[None]]) -> None:
        mine = by_broker[broker]
        try:
            if broker not in readers:
                connection = stack.enter_context(cluster.client.connection(broker, PATIENT))
                limit = progress.options.limit
                readers[broker] = open_reader(connection, cluster.client.clock, progress.pay, limit)
            for _ in step(readers[broker], mine):
                pass
        except (SpoolDiskError, TimeLimitError):
            raise
        except (OSError, HarnessError) as error:
            for reading in mine:
                reading.failure = reading.failure or str(error)

    on_all(lambda reader, mine: reader.read_on(mine, {reading.partition: reading.bound for reading in mine}))
    ends = highest_watermarks(cluster, {tp for _, tp in readings})
    on_all(lambda reader, mine: reader.finish(mine, ends))


def highest_watermarks(cluster: AuditedCluster, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Ask for the highest high watermark that any replica of each partition has by now."""
    latest = replica_statuses(cluster, places).by_partition
    return {tp: max(status.high_watermark for status in replicas.values()) for tp, replicas in latest.items()}


def copies_of(
    folder: RunFolder, run_id: str, read: SpoolResult, transactions: TransactionDescriptions | None
) -> Copies:
    """Return the replicas that were read into a folder, in the form of replicas that were copied from disks.

    ``transactions`` are written next to the replicas of their coordinator: ``{"transactions": [[transactional id,
    producer id, state]]}``.
    """
    by_coordinator: dict[int, list[tuple[str, int, str]]] = {}
    for described in transactions.by_producer.values() if transactions else ():
        row = described.transactional_id, described.producer_id, described.state
        by_coordinator.setdefault(described.coordinator, []).append(row)
    files = {broker: folder.fetched_snapshot(broker, AFTER_REJOIN) / COORDINATOR for broker in by_coordinator}
    for broker, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"transactions": by_coordinator[broker]}) + "\n")
    replicas = []
    for replica in sorted(read.readings):
        place = _replica_folder(folder, replica)
        segments, paths = tuple(live_segments(place).segments), read.stored.get(replica, {})
        segments = tuple(Segment(base_offset, path.name, None) for base_offset, path in paths.items()) or segments
        replicas.append(ReplicaCopy(replica[0], *replica[1], place, segments, tuple(paths.values())))
    return Copies(run_id, tuple(replicas), coordinator_answers=files, served=True)


class ReadingProgress:
    """The progress of all readers, in bytes on the brokers' disks, and their waits for the rate limit.

    The progress counts offsets, in which cleaning leaves gaps, where a broker does not report sizes. Once
    ``is_over`` is set, every reader stops.
    """

    def __init__(self, sizes: Mapping[Replica, int], lengths: Mapping[Replica, int], options: SpoolOptions) -> None:
        self.options, self._counts_bytes = options, sizes.keys() == lengths.keys()
        self._total = sum((sizes if self._counts_bytes else lengths).values())
        self._offsets_done = self._bytes_done = 0
        self._lock = threading.Lock()
        self.is_over = threading.Event()

    def advance(self, offsets: int, size_bytes: int) -> None:
        """Count and report a part that was read."""
        with self._lock:
            self._offsets_done += offsets
            self._bytes_done += size_bytes
            done = self._bytes_done if self._counts_bytes else self._offsets_done
            self.options.on_progress(min(done / self._total, 1.0) if self._total else 1.0, self._bytes_done)

    def pay(self, size_bytes: int) -> None:
        """Wait for the rate limit. Raises `HarnessError` once another reader has failed for all."""
        if self.options.limit is not None:
            self.options.limit.pay(size_bytes, self.is_over.is_set)
        if self.is_over.is_set():
            raise HarnessError("reading was ended")


def _writer(folder: Path, start: int, progress: ReadingProgress) -> Write:
    pieces, passed = Pieces(folder, progress.options.piece_bytes), start

    def write(base_offset: int, batches: memoryview, next_offset: int) -> None:
        nonlocal passed
        pieces.write(base_offset, batches)
        progress.advance(next_offset - passed, len(batches))
        passed = next_offset

    return write


def _store_state(folder: Path, reading: ReplicaReading) -> None:
    assert reading.state is not None  # noqa: S101  (every reading without a failure has one)
    folder.mkdir(parents=True, exist_ok=True)
    more = {name: getattr(reading, name) for name in ("bound", "read_from", "read_to", "listed_to")}
    state = replace(reading.state, aborted=tuple(reading.aborted))
    write_state(folder, state, reading.open, {**more, "complete": reading.is_complete})


def _replica_folder(folder: RunFolder, replica: Replica) -> Path:
    broker, (topic, partition) = replica
    return folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"


def sizes_bytes(cluster: AuditedCluster, replicas: Iterable[Replica]) -> dict[Replica, int]:
    """Return the size of each replica's segments on disk; nothing for a broker that does not report sizes."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for broker, tp in replicas:
        by_broker.setdefault(broker, []).append(tp)

    def ask(broker: int, caller: Connection) -> dict[Replica, int]:
        sizes = caller.ask(describe_log_dirs(by_broker[broker])).sizes_bytes
        return {(broker, tp): size for tp, size in sizes.items()}

    answers, _ = cluster.client.ask_all(by_broker, ask)
    return {replica: size for answer in answers.values() for replica, size in answer.items()}


def _sizes(cluster: AuditedCluster, statuses: ReplicaStatuses, lengths: Mapping[Replica, int]) -> dict[Replica, int]:
    """Return about how many bytes each replica's span has."""
    sizes = sizes_bytes(cluster, lengths)
    offsets = {r: statuses.replicas[r].high_watermark - statuses.replicas[r].log_start for r in sizes}
    return {replica: size * lengths[replica] // max(offsets[replica], 1) for replica, size in sizes.items()}


def _length(status: ReplicaStatus, span: Span) -> int:
    stop = status.high_watermark if span.stop is None else min(span.stop, status.high_watermark)
    return max(stop - span.start, 0)
