"""Reads whole replicas from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

``state.json`` is that of a snapshot (`harness.cluster.snapshot`) with further fields: ``read_from`` and ``read_to``,
the offsets that were read (``read_to`` is exclusive); ``settled``: whether nothing was appended between the last read
and the state; and ``until``: where the reading was to end, null for the log end offset. Nothing is committed, joined,
created or moved.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.connection import ReconnectingConnection, fetch_version
from harness.audit.pieces import PIECE_BYTES, Pieces, SpoolDiskError, raise_if_full
from harness.audit.reading import FETCH_BYTES, Reader, Span
from harness.audit.sizes import replica_sizes
from harness.cluster.snapshot import write_state
from harness.errors import HarnessError, TimeLimitError
from harness.run_folder.store import AFTER_REJOIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from harness.audit.cluster import Cluster
    from harness.audit.rate import RateLimit
    from harness.audit.reading import Reading
    from harness.audit.replica_status import ReplicaStatus, ReplicaStatuses
    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock
    from harness.run_folder.store import RunFolder

ENDS_ALL = (SpoolDiskError, TimeLimitError)
Replica: TypeAlias = "tuple[int, TopicPartition]"


@dataclass(frozen=True)
class Progress:
    """Progress of a spool. ``bytes_total``: bytes on the brokers' disks; None where a broker does not report them."""

    bytes_done: int
    bytes_total: int | None
    offsets_done: int
    offsets_total: int

    @property
    def fraction(self) -> float:
        """Between 0 and 1: of the bytes where they are known, else of the offsets, in which cleaning leaves gaps."""
        done, total = self.bytes_done, self.bytes_total
        if total is None:
            done, total = self.offsets_done, self.offsets_total
        return min(done / total, 1.0) if total else 1.0

    def left_s(self, elapsed_s: float) -> float | None:
        """Return the remaining seconds at the pace so far; None before anything was read."""
        return elapsed_s * (1 - self.fraction) / self.fraction if self.fraction else None


@dataclass(frozen=True)
class SpoolOptions:
    """How to read: ``limit`` for all brokers together, ``spans`` for partitions that are not read from end to end."""

    clock: Clock
    limit: RateLimit | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    on_progress: Callable[[Progress], None] = lambda _: None
    piece_bytes: int = PIECE_BYTES
    dial: Callable[[Address, Clock], ReconnectingConnection] = ReconnectingConnection


@dataclass(frozen=True)
class SpoolResult:
    """The readings by replica, and why other replicas failed; no folder is left of the latter."""

    readings: Mapping[Replica, Reading]
    failures: Mapping[Replica, str]


def spool(
    cluster: Cluster,
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
    wanted = [r for r in statuses.replicas if replicas is None or r in replicas]
    failures = {r: why for r, why in statuses.unseen.items() if replicas is None or r in replicas}
    for broker, why in statuses.silent.items():
        failures |= {
            (broker, tp): why
            for tp in cluster.replicas_by_broker[broker]
            if replicas is None or (broker, tp) in replicas
        }
    spans = {r: _span(statuses.replicas[r], options.spans.get(r[1])) for r in wanted}
    sizes = _sizes(cluster, statuses, spans, options)
    folder.path.mkdir(parents=True, exist_ok=True)
    raise_if_full(folder.path, sum(sizes.values()))
    offsets_total = sum(_length(statuses.replicas[replica], span) for replica, span in spans.items())
    counter = _Counter(offsets_total, sum(sizes.values()) if sizes.keys() == spans.keys() else None, options)
    targets = {r: _target(r, spans[r], statuses.replicas[r].high_watermark, folder) for r in wanted}
    readings: dict[Replica, Reading] = {}

    def read_broker(broker: int) -> None:
        left = [replica for replica in wanted if replica[0] == broker]
        try:
            with closing(options.dial(cluster.brokers[broker], options.clock)) as connection:
                reader = Reader(
                    connection, options.clock, counter.pay, fetch_version(connection), _fetch_bytes(options.limit)
                )
                while left:
                    result = _read(reader, targets[left[0]], options.piece_bytes, counter)
                    if isinstance(result, str):
                        failures[left.pop(0)] = result
                    else:
                        readings[left.pop(0)] = result
        except ENDS_ALL:
            raise
        except (OSError, HarnessError) as error:
            failures.update(dict.fromkeys(left, str(error)))

    brokers = sorted({broker for broker, _ in wanted})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        try:
            list(pool.map(read_broker, brokers))
        except BaseException:
            counter.end()
            raise
    return SpoolResult(readings, failures)


class _Counter:
    """Counts what all readers read, and makes them wait for the rate limit."""

    def __init__(self, offsets_total: int, bytes_total: int | None, options: SpoolOptions) -> None:
        self._progress = Progress(0, bytes_total, 0, offsets_total)
        self._options = options
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def advance(self, offsets: int, size_bytes: int) -> None:
        """Count what was read, and report the progress."""
        with self._lock:
            done = self._progress
            self._progress = replace(
                done, bytes_done=done.bytes_done + size_bytes, offsets_done=done.offsets_done + offsets
            )
            self._options.on_progress(self._progress)

    def pay(self, size_bytes: int) -> None:
        """Wait for the rate limit. Raises `HarnessError` once another reader has failed for all."""
        if self._options.limit is not None:
            self._options.limit.pay(size_bytes, self._is_over.is_set)
        if self._is_over.is_set():
            raise HarnessError("reading was ended")

    def end(self) -> None:
        """Make every reader stop."""
        self._is_over.set()


@dataclass(frozen=True)
class _Target:
    """One replica to read: which span, up to which high watermark at first, and the destination."""

    partition: TopicPartition
    span: Span
    high_watermark: int
    folder: Path


def _read(reader: Reader, target: _Target, piece_bytes: int, counter: _Counter) -> Reading | str:
    """Read one replica into its folder; on failure, remove the folder and return the reason."""
    passed = target.span.start

    def write(base_offset: int, batches: memoryview, next_offset: int) -> None:
        nonlocal passed
        pieces.write(base_offset, batches)
        counter.advance(next_offset - passed, len(batches))
        passed = next_offset

    try:
        with closing(Pieces(target.folder, piece_bytes)) as pieces:
            reading = reader.read(target.partition, target.span, target.high_watermark, write)
        fields = {
            "read_from": reading.read_from,
            "read_to": reading.read_to,
            "settled": reading.is_settled,
            "until": target.span.stop,
        }
        write_state(target.folder, reading.state, reading.open, fields)
    except BaseException as error:
        shutil.rmtree(target.folder, ignore_errors=True)
        if isinstance(error, HarnessError) and not isinstance(error, ENDS_ALL):
            return str(error)
        raise
    return reading


def _target(replica: Replica, span: Span, high_watermark: int, folder: RunFolder) -> _Target:
    broker, (topic, partition) = replica
    destination = folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"
    return _Target((topic, partition), span, high_watermark, destination)


def _span(status: ReplicaStatus, wanted: Span | None) -> Span:
    return Span(status.log_start) if wanted is None else replace(wanted, start=max(wanted.start, status.log_start))


def _sizes(
    cluster: Cluster, statuses: ReplicaStatuses, spans: Mapping[Replica, Span], options: SpoolOptions
) -> dict[Replica, int]:
    """Return about how many bytes each replica's span has; nothing for a broker that does not report sizes."""

    def ask(broker: int) -> dict[Replica, int]:
        try:
            with closing(options.dial(cluster.brokers[broker], options.clock)) as connection:
                sizes = replica_sizes(connection, [tp for b, tp in spans if b == broker])
        except (OSError, HarnessError):
            return {}
        return {
            (broker, tp): int(size * _share(statuses.replicas[broker, tp], spans[broker, tp]))
            for tp, size in sizes.items()
        }

    brokers = sorted({broker for broker, _ in spans})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        return {replica: size for sizes in pool.map(ask, brokers) for replica, size in sizes.items()}


def _share(status: ReplicaStatus, span: Span) -> float:
    whole = status.high_watermark - status.log_start
    return _length(status, span) / whole if whole > 0 else 0.0


def _length(status: ReplicaStatus, span: Span) -> int:
    stop = status.high_watermark if span.stop is None else min(span.stop, status.high_watermark)
    return max(stop - span.start, 0)


def _fetch_bytes(limit: RateLimit | None) -> int:
    return FETCH_BYTES if limit is None else min(FETCH_BYTES, limit.most_bytes)
