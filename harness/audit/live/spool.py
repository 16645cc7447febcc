"""Reads whole replicas from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

``state.json`` is that of a snapshot (`harness.cluster.snapshot`) with further fields: ``read_from`` and ``read_to``,
the offsets that were read (``read_to`` is exclusive); ``settled``: whether nothing was appended between the last read
and the state; and ``until``: where the reading was to end, null for the log end offset. Nothing is committed, joined,
created or moved.
"""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.live.cluster import PATIENT
from harness.audit.live.pieces import PIECE_BYTES, Pieces, SpoolDiskError, raise_if_full
from harness.audit.live.reading import FETCH_BYTES, Span, SpanReader
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.segments.folder import live_segments
from harness.cluster.snapshot import write_state
from harness.errors import HarnessError, TimeLimitError
from harness.kafka_api.fetch import choose_fetch_version
from harness.kafka_api.topics import describe_log_dirs
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from harness.audit.live.cluster import AuditedCluster
    from harness.audit.live.coordinators import TransactionDescriptions
    from harness.audit.live.rate import RateLimit
    from harness.audit.live.reading import SpanReading, Write
    from harness.audit.live.replica_status import ReplicaStatus, ReplicaStatuses
    from harness.kafka_api.messages import Caller, TopicPartition
    from harness.run_folder.store import RunFolder

ENDS_ALL = (SpoolDiskError, TimeLimitError)
Replica: TypeAlias = "tuple[int, TopicPartition]"


@dataclass(frozen=True)
class SpoolOptions:
    """How to read: ``limit`` for all brokers together, ``spans`` for partitions that are not read from end to end.

    ``on_progress`` is called with the fraction and the number of bytes that were read so far.
    """

    limit: RateLimit | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    on_progress: Callable[[float, int], None] = lambda _fraction, _bytes: None
    piece_bytes: int = PIECE_BYTES


@dataclass(frozen=True)
class SpoolResult:
    """The readings by replica, and why other replicas failed; no folder is left of the latter."""

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
    failures = {replica: why for replica, why in unread.items() if replicas is None or replica in replicas}
    spans = {
        replica: _span(status, options.spans.get(replica[1]))
        for replica, status in statuses.replicas.items()
        if replicas is None or replica in replicas
    }
    sizes = _sizes(cluster, statuses, spans)
    folder.path.mkdir(parents=True, exist_ok=True)
    raise_if_full(folder.path, sum(sizes.values()))
    offsets_total = sum(_length(statuses.replicas[replica], span) for replica, span in spans.items())
    counter = _Counter(offsets_total, sum(sizes.values()) if sizes.keys() == spans.keys() else None, options)
    fetch_bytes = FETCH_BYTES if options.limit is None else min(FETCH_BYTES, options.limit.most_bytes)
    readings: dict[Replica, SpanReading] = {}

    def read_broker(broker: int) -> None:
        left = [replica for replica in spans if replica[0] == broker]
        try:
            with cluster.client.connection(broker, PATIENT) as connection:
                version = connection.ask(choose_fetch_version())
                reader = SpanReader(connection, cluster.client.clock, counter.pay, version, fetch_bytes)
                while left:
                    replica, span = left[0], spans[left[0]]
                    read = partial(reader.read, replica[1], span, statuses.replicas[replica].high_watermark)
                    try:
                        readings[replica] = _store(read, span, _replica_folder(folder, replica), counter)
                    except ENDS_ALL:
                        raise
                    except HarnessError as error:
                        failures[replica] = str(error)
                    left.pop(0)
        except ENDS_ALL:
            raise
        except (OSError, HarnessError) as error:
            failures.update(dict.fromkeys(left, str(error)))

    brokers = sorted({broker for broker, _ in spans})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        try:
            list(pool.map(read_broker, brokers))
        except BaseException:
            counter.end()
            raise
    return SpoolResult(readings, failures)


def copies_of(folder: RunFolder, run_id: str, read: SpoolResult, transaction_files: Mapping[int, Path]) -> Copies:
    """Return the replicas that were read into a folder, in the form of replicas that were copied from disks.

    ``transaction_files``: as `store_transactions` returns them.
    """
    replicas = []
    for broker, (topic, partition) in sorted(read.readings):
        folder_of_replica = _replica_folder(folder, (broker, (topic, partition)))
        segments = tuple(live_segments(folder_of_replica).segments)
        replicas.append(ReplicaCopy(broker, topic, partition, folder_of_replica, segments))
    return Copies(run_id, tuple(replicas), coordinator_answers=transaction_files, served=True)


def store_transactions(folder: RunFolder, descriptions: TransactionDescriptions) -> dict[int, Path]:
    """Write each coordinator's transactions next to the replicas of its broker; return the files by broker.

    ``{"transactions": [[transactional id, producer id, state]]}``.
    """
    by_coordinator: dict[int, list[tuple[str, int, str]]] = {}
    for described in descriptions.by_producer.values():
        by_coordinator.setdefault(described.coordinator, []).append(
            (described.transactional_id, described.producer_id, described.state)
        )
    paths = {}
    for broker, transactions in by_coordinator.items():
        paths[broker] = folder.fetched_snapshot(broker, AFTER_REJOIN) / COORDINATOR
        paths[broker].parent.mkdir(parents=True, exist_ok=True)
        paths[broker].write_text(json.dumps({"transactions": transactions}) + "\n")
    return paths


class _Counter:
    """Counts what all readers read, and makes them wait for the rate limit.

    ``bytes_total``: bytes on the brokers' disks; None where a broker does not report them.
    """

    def __init__(self, offsets_total: int, bytes_total: int | None, options: SpoolOptions) -> None:
        self.options = options
        self._offsets_total, self._bytes_total = offsets_total, bytes_total
        self._offsets_done = self._bytes_done = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def advance(self, offsets: int, size_bytes: int) -> None:
        """Count what was read; report the progress in bytes, else in offsets, in which cleaning leaves gaps."""
        with self._lock:
            self._offsets_done += offsets
            self._bytes_done += size_bytes
            done, total = self._bytes_done, self._bytes_total
            if total is None:
                done, total = self._offsets_done, self._offsets_total
            self.options.on_progress(min(done / total, 1.0) if total else 1.0, self._bytes_done)

    def pay(self, size_bytes: int) -> None:
        """Wait for the rate limit. Raises `HarnessError` once another reader has failed for all."""
        if self.options.limit is not None:
            self.options.limit.pay(size_bytes, self._is_over.is_set)
        if self._is_over.is_set():
            raise HarnessError("reading was ended")

    def end(self) -> None:
        """Make every reader stop."""
        self._is_over.set()


def _store(read: Callable[[Write], SpanReading], span: Span, folder: Path, counter: _Counter) -> SpanReading:
    """Read one replica into its folder, which is removed on failure."""
    passed = span.start

    def write(base_offset: int, batches: memoryview, next_offset: int) -> None:
        nonlocal passed
        pieces.write(base_offset, batches)
        counter.advance(next_offset - passed, len(batches))
        passed = next_offset

    try:
        with closing(Pieces(folder, counter.options.piece_bytes)) as pieces:
            reading = read(write)
        fields = {
            "read_from": reading.read_from,
            "read_to": reading.read_to,
            "settled": reading.is_settled,
            "until": span.stop,
        }
        write_state(folder, reading.state, reading.open, fields)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return reading


def _replica_folder(folder: RunFolder, replica: Replica) -> Path:
    broker, (topic, partition) = replica
    return folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"


def _span(status: ReplicaStatus, wanted: Span | None) -> Span:
    return Span(status.log_start) if wanted is None else replace(wanted, start=max(wanted.start, status.log_start))


def _sizes(cluster: AuditedCluster, statuses: ReplicaStatuses, spans: Mapping[Replica, Span]) -> dict[Replica, int]:
    """Return about how many bytes each replica's span has; nothing for a broker that does not report sizes."""

    def ask(broker: int, caller: Caller) -> dict[Replica, int]:
        sizes = caller.ask(describe_log_dirs([tp for b, tp in spans if b == broker])).sizes_bytes
        return {
            (broker, tp): int(size * _share(statuses.replicas[broker, tp], spans[broker, tp]))
            for tp, size in sizes.items()
        }

    answers = cluster.client.ask_all({broker for broker, _ in spans}, ask).values()
    return {replica: size for sizes in answers if isinstance(sizes, dict) for replica, size in sizes.items()}


def _share(status: ReplicaStatus, span: Span) -> float:
    whole = status.high_watermark - status.log_start
    return _length(status, span) / whole if whole > 0 else 0.0


def _length(status: ReplicaStatus, span: Span) -> int:
    stop = status.high_watermark if span.stop is None else min(span.stop, status.high_watermark)
    return max(stop - span.start, 0)
