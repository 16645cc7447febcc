"""Reads replicas from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

The bound of a partition is fixed before anything is read: an offset that every replica has by then. Every replica is
read to the bound. Only then is each read further, to the high watermark that any replica of the partition has by now,
and is its broker asked for its state. So whatever a cleaner knew when it removed a record that another replica still
has, that other replica shows it. Nothing is committed, joined, created or moved.

``state.json`` is the state of a snapshot (`harness.cluster.snapshot`) with ``bound``, ``read_from``, ``read_to`` and
``listed_to`` of the reading, and ``complete``: whether the replica was read to its end.
"""

import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from harness.audit.live.broker_reports import (
    Replica,
    ReplicaStatus,
    ReplicaStatuses,
    Span,
    TransactionDescriptions,
    replica_statuses,
    sizes_bytes,
)
from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.audit.live.reading import BrokerReader, RateLimit, ReplicaReading, open_reader
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.segments.folder import Segment, live_segments
from harness.broker_files.segments.key_share import ALL_KEYS, KeyShare
from harness.cluster.snapshot import write_state
from harness.errors import HarnessError, TimeLimitError, raised_as
from harness.judge.finding import Place, name_of
from harness.kafka_api import TopicPartition
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR, MIN_FREE_BYTES, RunFolder

PIECE_BYTES: Final = 256 << 20
StoredReplica: TypeAlias = dict[int, Path]
"""The paths of a replica's segments that executors store by base offset, in order."""
ReadWithExecutors: TypeAlias = Callable[
    [AuditedCluster, Mapping[Replica, ReplicaReading], KeyShare],
    tuple[Mapping[Replica, ReplicaReading], Mapping[Replica, StoredReplica]],
]
"""`harness.audit.live.source.read_with_executors` of a session."""


class SpoolDiskError(HarnessError):
    """The disk that the audit writes to is full."""


class SpoolLimitError(SpoolDiskError):
    """The data is larger than the limit of the spool."""


def raise_if_full(folder: Path, size_bytes: int) -> None:
    """Raise `SpoolDiskError` where ``size_bytes`` more would leave less than `MIN_FREE_BYTES` on the folder's disk."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes - size_bytes < MIN_FREE_BYTES:
        raise SpoolDiskError(
            f"the disk of {folder} has {free_bytes >> 20} MiB left; reading takes {size_bytes >> 20} MiB more,"
            f" and {MIN_FREE_BYTES >> 20} MiB stay free"
        )


def raise_if_larger(size_bytes: int, most_bytes: int | None) -> None:
    """Raise `SpoolLimitError` for more bytes than this, if there is a limit."""
    if most_bytes is not None and size_bytes > most_bytes:
        raise SpoolLimitError(f"the data takes {size_bytes >> 20} MiB, and --spool-limit is {most_bytes >> 20} MiB")


@dataclass(frozen=True)
class SpoolResult:
    """The readings by replica, and why other replicas failed; the folders of the latter are removed.

    ``stored``: the segments that executors store, by replica.
    """

    readings: Mapping[Replica, ReplicaReading]
    failures: Mapping[Replica, str]
    stored: Mapping[Replica, StoredReplica] = field(default_factory=dict)


@dataclass
class _Files:
    """Writes the batches of all replicas, and reports the progress, in bytes on the brokers' disks.

    Unless ``is_in_bytes``, the progress counts offsets, in which cleaning leaves gaps. A file is larger than
    ``piece_bytes`` only where a single answer is. No file stays open: thousands of replicas are read at a time.
    ``share``: the keys to write. ``most_bytes``: of all files together.
    """

    folder: RunFolder
    piece_bytes: int
    on_progress: Callable[[float, int], None]
    total: int
    is_in_bytes: bool
    share: KeyShare
    most_bytes: int | None
    paths: dict[Replica, Path] = field(default_factory=dict)
    offsets_done: int = 0
    bytes_done: int = 0
    stored_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, broker: int, reading: ReplicaReading, base_offset: int, batches: memoryview, end: int) -> None:
        """Append whole batches. Raises `SpoolDiskError`."""
        replica = broker, reading.partition
        folder, path = _replica_folder(self.folder, replica), self.paths.get(replica)
        data = self.share.batches_of(batches, reading.bound, source=name_of(reading.partition))
        raise_if_full(self.folder.path, len(data))
        with raised_as(SpoolDiskError, f"{folder} cannot be written", OSError):
            if path is None or path.stat().st_size + len(data) > self.piece_bytes:
                folder.mkdir(parents=True, exist_ok=True)
                path = self.paths[replica] = folder / f"{base_offset:020}.log"
            with path.open("ab") as file:
                file.write(data)
        with self.lock:
            self.offsets_done += end - reading.read_to
            self.bytes_done += len(batches)
            self.stored_bytes += len(data)
            raise_if_larger(self.stored_bytes, self.most_bytes)
            done = self.bytes_done if self.is_in_bytes else self.offsets_done
            self.on_progress(min(done / self.total, 1.0) if self.total else 1.0, self.bytes_done)


def spool(
    cluster: AuditedCluster,
    statuses: ReplicaStatuses,
    folder: RunFolder,
    replicas: Collection[Replica] | None = None,
    *,
    limit: RateLimit | None = None,
    spans: Mapping[TopicPartition, Span] | None = None,
    on_progress: Callable[[float, int], None] = lambda _fraction, _bytes: None,
    piece_bytes: int = PIECE_BYTES,
    share: KeyShare = ALL_KEYS,
    most_bytes: int | None = None,
    executors: ReadWithExecutors | None = None,
) -> SpoolResult:
    """Read these replicas, or all in ``statuses``, all brokers in parallel.

    A replica without a status is among the failures, with the reason. ``limit``: for all brokers together. ``spans``:
    the parts to read of partitions that are not read completely. ``on_progress`` is called with the fraction and the
    number of bytes that were read so far. ``share``: the keys to store; ``most_bytes``: the limit of their size.
    ``executors`` read and store the batches, without progress, and with sizes as brokers report them; by default, this
    process writes files. Raises `SpoolDiskError` where they do not fit on the disk, `SpoolLimitError`, and
    `TimeLimitError`.
    """
    assigned = cluster.state.replicas_by_broker
    unread = {**statuses.unseen} | {(b, tp): why for b, why in statuses.silent.items() for tp in assigned[b]}
    replicas = {*unread, *statuses.replicas} if replicas is None else replicas
    failures = {replica: why for replica, why in unread.items() if replica in replicas}
    readings: Mapping[Replica, ReplicaReading] = {
        replica: _reading(replica[1], status, statuses, (spans or {}).get(replica[1], Span(0)))
        for replica, status in sorted(statuses.replicas.items())
        if replica in replicas
    }
    stored: Mapping[Replica, StoredReplica] = {}
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        ends = {(broker, tp): statuses.replicas[broker, tp].high_watermark for broker, tp in readings}
        lengths = {r: max(min(ends[r], reading.span.stop) - reading.span.start, 0) for r, reading in readings.items()}
        whole = {replica: max(end - statuses.replicas[replica].log_start, 1) for replica, end in ends.items()}
        sizes = {r: size * lengths[r] // whole[r] for r, size in sizes_bytes(cluster, readings.keys()).items()}
        expected_bytes = sum(sizes.values()) // share.count
        raise_if_larger(expected_bytes, most_bytes)
        if readings and executors is not None:
            readings, stored = executors(cluster, readings, share)
        else:
            raise_if_full(folder.path, expected_bytes)
            # Some brokers do not report sizes.
            is_in_bytes = sizes.keys() == lengths.keys()
            total = sum((sizes if is_in_bytes else lengths).values())
            files = _Files(folder, piece_bytes, on_progress, total, is_in_bytes, share, most_bytes)
            read_all(cluster, readings, files.write, limit)
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


def _reading(tp: TopicPartition, status: ReplicaStatus, statuses: ReplicaStatuses, limits: Span) -> ReplicaReading:
    span = Span(max(limits.start, status.log_start), limits.stop)
    return ReplicaReading(tp, span, min(bound_of(statuses.by_partition[tp].values()), span.stop))


def bound_of(replicas: Collection[ReplicaStatus]) -> int:
    """Return the offset up to which every replica of a partition has each committed record, or has cleaned it."""
    ends = (status.high_watermark if status.log_end is None else status.log_end for status in replicas)
    return min(*ends, max(status.high_watermark for status in replicas))


def readings_by_broker(readings: Mapping[Replica, ReplicaReading]) -> dict[int, list[ReplicaReading]]:
    """Sort readings by broker and partition."""
    by_broker: dict[int, list[ReplicaReading]] = {}
    for broker, tp in sorted(readings):
        by_broker.setdefault(broker, []).append(readings[broker, tp])
    return by_broker


def read_all(
    cluster: AuditedCluster,
    readings: Mapping[Replica, ReplicaReading],
    write: Callable[[int, ReplicaReading, int, memoryview, int], None],
    limit: RateLimit | None,
) -> None:
    """Read to the bounds on all brokers; then on all brokers to the high watermarks, and ask for the states.

    ``write``: as `Write`, after the broker. A replica that cannot be read gets a ``failure``.
    """
    by_broker = readings_by_broker(readings)
    readers: dict[int, BrokerReader] = {}
    is_over = threading.Event()

    def pay(size_bytes: int) -> None:
        if limit is not None:
            limit.pay(size_bytes, is_over.is_set)
        if is_over.is_set():
            raise HarnessError("reading was ended")

    def on_all(step: Callable[[BrokerReader, Iterable[ReplicaReading]], Iterable[None]]) -> None:
        is_over.clear()
        with ThreadPoolExecutor(max(len(by_broker), 1)) as pool, ExitStack() as ending:
            ending.callback(is_over.set)
            list(pool.map(partial(attempt, step), by_broker))

    def attempt(step: Callable[[BrokerReader, Iterable[ReplicaReading]], Iterable[None]], broker: int) -> None:
        mine = by_broker[broker]
        try:
            if broker not in readers:
                connection = stack.enter_context(cluster.client.connection(broker, PATIENT))
                readers[broker] = open_reader(connection, cluster.client.clock, partial(write, broker), pay, limit)
            list(step(readers[broker], mine))
        except (SpoolDiskError, TimeLimitError):
            raise
        except (OSError, HarnessError) as error:
            for reading in mine:
                reading.failure = reading.failure or str(error)

    with ExitStack() as stack:
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


def _store_state(folder: Path, reading: ReplicaReading) -> None:
    assert reading.state is not None  # noqa: S101  (every reading without a failure has one)
    folder.mkdir(parents=True, exist_ok=True)
    more = {"bound": reading.bound, "read_from": reading.span.start}
    more |= {"read_to": reading.read_to, "listed_to": reading.listed_to, "complete": reading.is_complete}
    write_state(folder, replace(reading.state, aborted=tuple(reading.aborted)), reading.open, more)


def _replica_folder(folder: RunFolder, replica: Replica) -> Path:
    broker, (topic, partition) = replica
    return folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"


def partition_sizes(cluster: AuditedCluster, statuses: ReplicaStatuses, places: Collection[Place]) -> dict[Place, int]:
    """Return the bytes of all replicas of each partition, in this order, by what brokers report now.

    A partition whose brokers report no size counts as empty.
    """
    sizes = dict.fromkeys(places, 0)
    for (_, place), size in sizes_bytes(cluster, [r for r in statuses.replicas if r[1] in sizes]).items():
        sizes[place] += size
    return sizes


def waves_of(sizes: Mapping[Place, int], limit_bytes: int) -> list[list[Place]]:
    """Divide partitions into waves, in order: each is read, judged and deleted before the next.

    A wave with a partition that is larger than the limit has no other partition; `KeyShare` divides it.
    """
    waves: list[list[Place]] = []
    room = 0
    for place, size in sizes.items():
        if not waves or size > room:
            waves.append([])
            room = limit_bytes
        waves[-1].append(place)
        room -= size
    return waves
