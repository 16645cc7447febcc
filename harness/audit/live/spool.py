"""Reads complete replicas from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

``state.json`` is the state of a snapshot (`harness.cluster.snapshot`) with further fields: ``read_from`` and
``read_to``, the offsets that were read (``read_to`` is exclusive); ``settled``: whether nothing was appended between
the last read and the state; and ``until``: where the reading was to end, null for the log end offset. Nothing is
committed, joined, created or moved.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from harness.audit.live.broker_reports import ReplicaStatus, ReplicaStatuses, TransactionDescriptions
from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.audit.live.reading import FETCH_BYTES, Span, SpanReader, SpanReading, Write
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.segments.folder import live_segments
from harness.cluster.snapshot import write_state
from harness.errors import HarnessError, TimeLimitError
from harness.host.clock import Clock
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import choose_fetch_version
from harness.kafka_api.messages import TopicPartition
from harness.kafka_api.topics import describe_log_dirs
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR, MIN_FREE_BYTES, RunFolder

Replica: TypeAlias = "tuple[int, TopicPartition]"
PIECE_BYTES = 256 << 20
BURST_S = 1.0
SLACK_S = 60.0
"""A wait for the rate limit that ends later than planned by more than this has failed."""


class SpoolDiskError(HarnessError):
    """The disk that the audit writes to is full."""


class RateLimit:
    """One rate limit for all brokers together: a token bucket by the generic cell rate algorithm (ITU-T I.371).

    The size of an answer is known only after it arrives. So each reader pays for its answers afterwards, with a wait of
    its own, in order. Safe to share between threads.
    """

    def __init__(self, rate_bytes_s: int, clock: Clock) -> None:
        """Begin with a full bucket, of `BURST_S` seconds' worth."""
        self._rate_bytes_s = rate_bytes_s
        self._clock = clock
        self._lock = threading.Lock()
        self._full_at_s = clock.now_s()

    @property
    def bucket_bytes(self) -> int:
        """The size of the bucket: the most bytes to request at a time."""
        return max(int(self._rate_bytes_s * BURST_S), 1)

    def pay(self, size_bytes: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows so many bytes or ``is_over``. Raises `TimeLimitError` as every wait does."""
        with self._lock:
            now_s = self._clock.now_s()
            self._full_at_s = max(self._full_at_s, now_s) + size_bytes / self._rate_bytes_s
            paid_at_s = self._full_at_s - BURST_S
        timeout_s = max(paid_at_s - now_s, 0.0) + SLACK_S
        self._clock.wait_until(lambda: is_over() or self._clock.now_s() >= paid_at_s, timeout_s, "the rate limit")


@dataclass(frozen=True)
class SpoolOptions:
    """``limit`` for all brokers together, and ``spans``: the parts to read of partitions that are not read completely.

    ``on_progress`` is called with the fraction and the number of bytes that were read so far.
    """

    limit: RateLimit | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    on_progress: Callable[[float, int], None] = lambda _fraction, _bytes: None
    piece_bytes: int = PIECE_BYTES


@dataclass(frozen=True)
class SpoolResult:
    """The readings by replica, and why other replicas failed; the folders of the latter are removed."""

    readings: Mapping[Replica, SpanReading]
    failures: Mapping[Replica, str]


def spool(
    cluster: AuditedCluster,
    statuses: ReplicaStatuses,
    folder: RunFolder,
    options: SpoolOptions,
    replicas: Collection[Replica] | None = None,
) -> SpoolResult:
    """Read these replicas, or all in ``statuses``: each broker's one after the other, all brokers in parallel.

    A replica without a status is among the failures, with the reason. To read differing replicas again, the caller
    passes another folder and ``replicas``.

    Raises `SpoolDiskError` where they do not fit on the disk, and `TimeLimitError`.
    """
    unread = dict(statuses.unseen)
    for broker, why in statuses.silent.items():
        unread |= {(broker, tp): why for tp in cluster.state.replicas_by_broker[broker]}
    replicas = {*unread, *statuses.replicas} if replicas is None else replicas
    failures = {replica: why for replica, why in unread.items() if replica in replicas}
    read_from = {replica: status.log_start for replica, status in statuses.replicas.items() if replica in replicas}
    requested = {replica: options.spans.get(replica[1], Span(start)) for replica, start in read_from.items()}
    spans = {r: replace(span, start=max(span.start, read_from[r])) for r, span in requested.items()}
    folder.path.mkdir(parents=True, exist_ok=True)
    lengths = {replica: _length(statuses.replicas[replica], span) for replica, span in spans.items()}
    sizes = _sizes(cluster, statuses, lengths)
    raise_if_full(folder.path, sum(sizes.values()))
    progress = _Progress(sizes, lengths, options)
    fetch_bytes = FETCH_BYTES if options.limit is None else min(FETCH_BYTES, options.limit.bucket_bytes)
    readings: dict[Replica, SpanReading] = {}

    def read_broker(broker: int) -> None:
        pending = [replica for replica in spans if replica[0] == broker]
        try:
            with cluster.client.connection(broker, PATIENT) as connection:
                version = connection.ask(choose_fetch_version())
                reader = SpanReader(connection, cluster.client.clock, progress.pay, version, fetch_bytes)
                while pending:
                    replica = pending[0]
                    high_watermark = statuses.replicas[replica].high_watermark
                    read = partial(reader.read, replica[1], spans[replica], high_watermark)
                    try:
                        readings[replica] = _store(read, spans[replica], _replica_folder(folder, replica), progress)
                    except (SpoolDiskError, TimeLimitError):
                        raise
                    except HarnessError as error:
                        failures[replica] = str(error)
                    pending.pop(0)
        except (SpoolDiskError, TimeLimitError):
            raise
        except (OSError, HarnessError) as error:
            failures.update(dict.fromkeys(pending, str(error)))

    brokers = sorted({broker for broker, _ in spans})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        try:
            list(pool.map(read_broker, brokers))
        except BaseException:
            progress.is_over.set()
            raise
    return SpoolResult(readings, failures)


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
        replicas.append(ReplicaCopy(replica[0], *replica[1], place, tuple(live_segments(place).segments)))
    return Copies(run_id, tuple(replicas), coordinator_answers=files, served=True)


class Pieces:
    """Writes one replica's batches to ``<20-digit base offset>.log`` files of at most ``piece_bytes``.

    A file is larger only where a single answer is.
    """

    def __init__(self, folder: Path, piece_bytes: int = PIECE_BYTES) -> None:
        """Make the folder. Raises `HarnessError` where it has files of an earlier reading."""
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.log")):
            raise HarnessError(f"{folder} contains a replica already")
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._file: IO[bytes] | None = None
        self._size_bytes = 0

    def write(self, base_offset: int, batches: memoryview) -> None:
        """Append whole batches that begin at ``base_offset``. Raises `SpoolDiskError`."""
        raise_if_full(self._folder, len(batches))
        try:
            if self._file is None or self._size_bytes + len(batches) > self._piece_bytes:
                self.close()
                self._file = (self._folder / f"{base_offset:020}.log").open("xb")
                self._size_bytes = 0
            self._file.write(batches)
        except OSError as error:
            raise SpoolDiskError(f"{self._folder} cannot be written: {error}") from error
        self._size_bytes += len(batches)

    def close(self) -> None:
        """Close the current file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def raise_if_full(folder: Path, size_bytes: int) -> None:
    """Raise `SpoolDiskError` where ``size_bytes`` more would leave less than `MIN_FREE_BYTES` on the folder's disk."""
    usage = os.statvfs(folder)
    free_bytes = usage.f_bavail * usage.f_frsize
    if free_bytes - size_bytes < MIN_FREE_BYTES:
        raise SpoolDiskError(
            f"the disk of {folder} has {free_bytes >> 20} MiB left; reading takes {size_bytes >> 20} MiB more,"
            f" and {MIN_FREE_BYTES >> 20} MiB stay free"
        )


class _Progress:
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


def _store(read: Callable[[Write], SpanReading], span: Span, folder: Path, progress: _Progress) -> SpanReading:
    passed = span.start

    def write(base_offset: int, batches: memoryview, next_offset: int) -> None:
        nonlocal passed
        pieces.write(base_offset, batches)
        progress.advance(next_offset - passed, len(batches))
        passed = next_offset

    try:
        with closing(Pieces(folder, progress.options.piece_bytes)) as pieces:
            reading = read(write)
        more: dict[str, Any] = {"read_from": reading.read_from, "read_to": reading.read_to}
        more |= {"settled": reading.is_settled, "until": span.stop}
        write_state(folder, reading.state, reading.open, more)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return reading


def _replica_folder(folder: RunFolder, replica: Replica) -> Path:
    broker, (topic, partition) = replica
    return folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"


def _sizes(cluster: AuditedCluster, statuses: ReplicaStatuses, lengths: Mapping[Replica, int]) -> dict[Replica, int]:
    """Return about how many bytes each replica's span has; nothing for a broker that does not report sizes."""

    def ask(broker: int, caller: Connection) -> dict[Replica, int]:
        sizes = caller.ask(describe_log_dirs([tp for b, tp in lengths if b == broker])).sizes_bytes
        return {(broker, tp): size for tp, size in sizes.items()}

    answers, _ = cluster.client.ask_all({broker for broker, _ in lengths}, ask)
    sizes = {replica: size for answer in answers.values() for replica, size in answer.items()}
    offsets = {r: statuses.replicas[r].high_watermark - statuses.replicas[r].log_start for r in sizes}
    return {replica: size * lengths[replica] // max(offsets[replica], 1) for replica, size in sizes.items()}


def _length(status: ReplicaStatus, span: Span) -> int:
    stop = status.high_watermark if span.stop is None else min(span.stop, status.high_watermark)
    return max(stop - span.start, 0)
