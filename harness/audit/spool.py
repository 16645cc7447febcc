"""Reads replicas whole from a running cluster, each from its own broker, into a folder with a run folder's layout.

    fetched/<broker>/after-rejoin/<topic>-<partition>/<20-digit base offset>.log     whole batches as served
                                                      state.json

``state.json`` is that of a snapshot (`harness.cluster.snapshot`), and beside it: ``read_from`` and ``read_to``, the
offsets that were read (the second one exclusive), ``settled``: whether nothing was appended between the last read and
what the state says, and ``until``: where the reading was to end, null for the log's end. Nothing is committed, joined,
created or moved.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.line import Line, fetch_version
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
    from harness.audit.looks import Look, Looks
    from harness.audit.rate import RateLimit
    from harness.audit.reading import Reading
    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock
    from harness.run_folder.store import RunFolder

ENDS_ALL = (SpoolDiskError, TimeLimitError)
Replica: TypeAlias = "tuple[int, TopicPartition]"


@dataclass(frozen=True)
class Progress:
    """How far a spool is. ``bytes_total`` is what brokers have on disk; None where one of them does not tell."""

    bytes_done: int
    bytes_total: int | None
    offsets_done: int
    offsets_total: int

    @property
    def fraction(self) -> float:
        """Between 0 and 1: of the bytes where they are known, else of the offsets, which cleaning has thinned out."""
        done, total = self.bytes_done, self.bytes_total
        if total is None:
            done, total = self.offsets_done, self.offsets_total
        return min(done / total, 1.0) if total else 1.0

    def left_s(self, elapsed_s: float) -> float | None:
        """Return the seconds that are left at the pace so far; None before anything was read."""
        return elapsed_s * (1 - self.fraction) / self.fraction if self.fraction else None


@dataclass(frozen=True)
class Spool:
    """How to read: ``limit`` for all brokers together, ``spans`` for partitions that are not read from end to end."""

    clock: Clock
    limit: RateLimit | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    on_progress: Callable[[Progress], None] = lambda _: None
    piece_bytes: int = PIECE_BYTES
    dial: Callable[[Address, Clock], Line] = Line


@dataclass(frozen=True)
class Spooled:
    """What was read of which replica, and why others were not; of those no folder is left."""

    readings: Mapping[Replica, Reading]
    failures: Mapping[Replica, str]


def spool(
    cluster: Cluster, looks: Looks, folder: RunFolder, how: Spool, replicas: Collection[Replica] | None = None
) -> Spooled:
    """Read these replicas, or all that were seen in ``looks``: every broker's one after the other, all brokers at once.

    A replica that was not seen is among the failures, with the reason. The caller reads what differs again into another
    folder, by ``replicas``.

    Raises `SpoolDiskError` where they do not fit on the disk, and `TimeLimitError`.
    """
    wanted = [r for r in looks.replicas if replicas is None or r in replicas]
    failures = {r: why for r, why in looks.unseen.items() if replicas is None or r in replicas}
    for broker, why in looks.silent.items():
        failures |= {(broker, tp): why for tp in cluster.held[broker] if replicas is None or (broker, tp) in replicas}
    spans = {r: _span(looks.replicas[r], how.spans.get(r[1])) for r in wanted}
    sizes = _sizes(cluster, looks, spans, how)
    folder.path.mkdir(parents=True, exist_ok=True)
    raise_if_full(folder.path, sum(sizes.values()))
    offsets_total = sum(_length(looks.replicas[replica], span) for replica, span in spans.items())
    tally = _Tally(offsets_total, sum(sizes.values()) if sizes.keys() == spans.keys() else None, how)
    targets = {r: _target(r, spans[r], looks.replicas[r].high_watermark, folder) for r in wanted}
    readings: dict[Replica, Reading] = {}

    def read_broker(broker: int) -> None:
        left = [replica for replica in wanted if replica[0] == broker]
        try:
            with closing(how.dial(cluster.brokers[broker], how.clock)) as line:
                reader = Reader(line, how.clock, tally.pay, fetch_version(line), _fetch_bytes(how.limit))
                while left:
                    told = _read(reader, targets[left[0]], how.piece_bytes, tally)
                    if isinstance(told, str):
                        failures[left.pop(0)] = told
                    else:
                        readings[left.pop(0)] = told
        except ENDS_ALL:
            raise
        except (OSError, HarnessError) as error:
            failures.update(dict.fromkeys(left, str(error)))

    brokers = sorted({broker for broker, _ in wanted})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        try:
            list(pool.map(read_broker, brokers))
        except BaseException:
            tally.end()
            raise
    return Spooled(readings, failures)


class _Tally:
    """Counts what all readers read, and has them wait for the rate limit."""

    def __init__(self, offsets_total: int, bytes_total: int | None, how: Spool) -> None:
        self._progress = Progress(0, bytes_total, 0, offsets_total)
        self._how = how
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def advance(self, offsets: int, size_bytes: int) -> None:
        """Count what was read, and tell of it."""
        with self._lock:
            done = self._progress
            self._progress = replace(
                done, bytes_done=done.bytes_done + size_bytes, offsets_done=done.offsets_done + offsets
            )
            self._how.on_progress(self._progress)

    def pay(self, size_bytes: int) -> None:
        """Wait for the rate limit. Raises `HarnessError` once another reader has failed for all."""
        if self._how.limit is not None:
            self._how.limit.pay(size_bytes, self._is_over.is_set)
        if self._is_over.is_set():
            raise HarnessError("reading was ended")

    def end(self) -> None:
        """Have every reader end."""
        self._is_over.set()


@dataclass(frozen=True)
class _Target:
    """One replica to read: which part of it, up to which high watermark for now, and where to."""

    partition: TopicPartition
    span: Span
    high_watermark: int
    folder: Path


def _read(reader: Reader, target: _Target, piece_bytes: int, tally: _Tally) -> Reading | str:
    """Read one replica into its folder; where that fails, leave none and return the reason."""
    passed = target.span.start

    def write(base_offset: int, batches: memoryview, next_offset: int) -> None:
        nonlocal passed
        pieces.write(base_offset, batches)
        tally.advance(next_offset - passed, len(batches))
        passed = next_offset

    try:
        with closing(Pieces(target.folder, piece_bytes)) as pieces:
            reading = reader.read(target.partition, target.span, target.high_watermark, write)
        more = {
            "read_from": reading.read_from,
            "read_to": reading.read_to,
            "settled": reading.is_settled,
            "until": target.span.stop,
        }
        write_state(target.folder, reading.state, reading.open, more)
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


def _span(look: Look, wanted: Span | None) -> Span:
    return Span(look.log_start) if wanted is None else replace(wanted, start=max(wanted.start, look.log_start))


def _sizes(cluster: Cluster, looks: Looks, spans: Mapping[Replica, Span], how: Spool) -> dict[Replica, int]:
    """Return about how many bytes each replica's span has; none of a broker that does not tell."""

    def ask(broker: int) -> dict[Replica, int]:
        try:
            with closing(how.dial(cluster.brokers[broker], how.clock)) as line:
                told = replica_sizes(line, [tp for b, tp in spans if b == broker])
        except (OSError, HarnessError):
            return {}
        return {
            (broker, tp): int(size * _share(looks.replicas[broker, tp], spans[broker, tp])) for tp, size in told.items()
        }

    brokers = sorted({broker for broker, _ in spans})
    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        return {replica: size for told in pool.map(ask, brokers) for replica, size in told.items()}


def _share(look: Look, span: Span) -> float:
    whole = look.high_watermark - look.log_start
    return _length(look, span) / whole if whole > 0 else 0.0


def _length(look: Look, span: Span) -> int:
    stop = look.high_watermark if span.stop is None else min(span.stop, look.high_watermark)
    return max(stop - span.start, 0)


def _fetch_bytes(limit: RateLimit | None) -> int:
    return FETCH_BYTES if limit is None else min(FETCH_BYTES, limit.most_bytes)
