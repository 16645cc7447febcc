"""Timed observations: the content of each broker's replicas, and which records were removed from them, and when.

Observation schema (``observations.jsonl``), one line whenever a replica has changed:

    time_ms, broker, topic, partition
    log_start, high_watermark, last_stable_offset, log_end    int
    open       list   [[producer id, epoch, first offset], ...] by DescribeProducers; null where the broker lists none
    batches    int    number of batches in the log
    digest     int    of those batches, see `batch_digest`: equal for equal logs
    appeared   list   [{offset, kind, producer_id}, ...] of records that are not in the previous observation
    removed    list   [{offset, kind}, ...] of records that are only in the previous observation
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from harness.broker_files.segments.batches import Batch, batch_digest, iter_records, marker
from harness.broker_files.segments.records import DATA, MARKERS, first_marker
from harness.errors import HarnessError
from harness.host.clock import Clock, Routine
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import ReplicaReader, ReplicaState
from harness.kafka_api.transactions import OpenTransaction, OpenTransactions
from harness.run_folder.history import read_lines

if TYPE_CHECKING:
    from harness.runtimes.base import Runtime

Content = tuple[tuple[int, str], ...]
"""(offset, kind) of each entry of a batch; kinds: value, tombstone, commit, abort, other control types, empty."""

OFFSETS: Final = ("log_start", "high_watermark", "last_stable_offset", "log_end")


@dataclass(frozen=True)
class ObservedReplica:
    """One replica at one moment. ``present`` maps offsets to (kind, producer id)."""

    log_start: int
    high_watermark: int
    last_stable_offset: int
    log_end: int
    open: OpenTransactions = ()
    batches: int = 0
    digest: int = 0
    present: dict[int, tuple[str, int]] = field(default_factory=dict)


class ReplicaObserver:
    """Polls every live broker, from `start` to `close`."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: Mapping[TopicPartition, Sequence[int]],
        path: Path,
        clock: Clock,
        *,
        period_s: float,
        reader: Callable[[int], ReplicaReader],
        resumed: bool = False,
    ) -> None:
        """Open ``path``; a run that is ``resumed`` continues from its earlier observations.

        ``replicas``: the present or future brokers of each partition. ``reader`` opens a broker's reader.
        """
        self._poller = Poller(runtime, clock, reader, period_s=period_s, name="observations")
        self.stop, self.raise_if_failed = self._poller.stop, self._poller.raise_if_failed
        self._partitions = {b: [tp for tp, brokers in replicas.items() if b in brokers] for b in runtime.brokers}
        self._clock = clock
        past = read_lines(path) if resumed else []
        self._file: IO[str] = path.open("a" if resumed else "x", buffering=1)
        self._lock = threading.Lock()
        self._views: dict[tuple[int, TopicPartition], ObservedReplica] = {}
        self._started_s = 0.0
        self._looked_s: dict[int, float] = {}
        self._answered_s: dict[int, list[float]] = {}
        self._seen: dict[TopicPartition, dict[int, tuple[str, int]]] = {tp: {} for tp in replicas}
        self._contents: dict[tuple[TopicPartition, int, int], Content] = {}
        for line in past:
            self._recall(line)
        self._last_answers: dict[tuple[int, TopicPartition], tuple[ReplicaState, OpenTransactions]] = {}
        """The last answers: an unchanged answer is not parsed again."""

    def start(self) -> None:
        """Start to poll."""
        self._started_s = self._clock.now_s()
        self._poller.start(self._poll)

    def close(self) -> None:
        """End the routines, their connections and the file."""
        self._poller.close()
        self._file.close()

    def view(self, broker: int, partition: TopicPartition) -> ObservedReplica | None:
        """Return the newest view of a replica."""
        with self._lock:
            return self._views.get((broker, partition))

    def looked_since(self, broker: int, since_s: float) -> bool:
        """Return whether a poll that began at ``since_s`` or later has read all replicas of the broker."""
        with self._lock:
            return self._looked_s.get(broker, -1.0) >= since_s

    def longest_silence_s(self, since_s: float) -> float:
        """Return the longest time in which some broker did not answer a poll of all its replicas.

        ``since_s``: when the time begins; at the earliest with the polls.
        """
        since_s, now_s = max(since_s, self._started_s), self._clock.now_s()
        with self._lock:
            answered_s = [[at_s for at_s in self._answered_s.get(b, ()) if at_s > since_s] for b in self._partitions]
        return max(b - a for times_s in answered_s for a, b in pairwise([since_s, *times_s, now_s]))

    def seen(self, partition: TopicPartition) -> dict[int, tuple[str, int]]:
        """Return every offset ever observed on any replica, with (kind, producer id)."""
        with self._lock:
            return dict(self._seen[partition])

    def marker_after(self, partition: TopicPartition, offset: int) -> int | None:
        """Return the first observed marker on any replica that ends the transaction of the record at ``offset``."""
        records = self.seen(partition)
        if offset not in records:
            return None
        markers = ((at, producer_id) for at, (kind, producer_id) in records.items() if kind in MARKERS)
        return first_marker(markers, records[offset][1], offset)

    def is_removed(self, broker: int, partition: TopicPartition, offset: int) -> bool:
        """Return whether the replica's log continues past ``offset`` and has no record there."""
        view = self.view(broker, partition)
        return view is not None and view.log_end > offset and offset not in view.present

    def _recall(self, line: dict[str, Any]) -> None:
        broker, tp = line["broker"], (line["topic"], line["partition"])
        before = self._views.get((broker, tp))
        appeared = {entry["offset"]: (entry["kind"], entry["producer_id"]) for entry in line["appeared"]}
        removed = {entry["offset"] for entry in line["removed"]}
        present = {o: kind for o, kind in (before.present if before else {}).items() if o not in removed} | appeared
        offsets = {name: line[name] for name in OFFSETS}
        self._views[broker, tp] = ObservedReplica(**offsets, present=present)
        self._see(tp, appeared)

    def _see(self, partition: TopicPartition, records: Mapping[int, tuple[str, int]]) -> None:
        # An emptied marker keeps its earlier kind.
        self._seen[partition] |= {offset: kind for offset, kind in records.items() if kind[0] != "empty"}

    def _poll(self, broker: int, reader: ReplicaReader) -> None:
        began_s = self._clock.now_s()
        answers = reader.read(self._partitions[broker])
        states = {tp: state for tp, state in answers.items() if isinstance(state, ReplicaState)}
        try:
            opened = reader.open_transactions(list(states))
        except HarnessError:
            # A replica is being created or moved; the next poll reads it.
            return
        for tp, state in states.items():
            answer = (state, opened[tp])
            if self._last_answers.get((broker, tp)) != answer:
                self._last_answers[broker, tp] = answer
                self._take(broker, tp, self._read(tp, *answer))
        if len(states) == len(answers):
            with self._lock:
                self._looked_s[broker] = began_s
                self._answered_s.setdefault(broker, []).append(self._clock.now_s())

    def _read(self, partition: TopicPartition, state: ReplicaState, opened: OpenTransactions) -> ObservedReplica:
        present: dict[int, tuple[str, int]] = {}
        digest = 0
        for batch in state.batches:
            digest ^= batch_digest(batch.base_offset, batch.crc)
            # A batch is unpacked once for all replicas and polls.
            key = (partition, batch.base_offset, batch.crc)
            if key not in self._contents:
                self._contents[key] = content_of(batch)
            present |= {offset: (kind, batch.producer_id) for offset, kind in self._contents[key]}
        offsets = {name: getattr(state, name) for name in OFFSETS}
        return ObservedReplica(**offsets, open=opened, batches=len(state.batches), digest=digest, present=present)

    def _take(self, broker: int, partition: TopicPartition, view: ObservedReplica) -> None:
        with self._lock:
            before = self._views.get((broker, partition))
            if before == view:
                return
            earlier = before.present if before else {}
            line: dict[str, Any] = {
                "time_ms": self._clock.time_ms(),
                "broker": broker,
                "topic": partition[0],
                "partition": partition[1],
                **{name: getattr(view, name) for name in OFFSETS},
                "open": as_lists(view.open),
                "batches": view.batches,
                "digest": view.digest,
                "appeared": [
                    {"offset": o, "kind": kind, "producer_id": pid}
                    for o, (kind, pid) in view.present.items()
                    if o not in earlier
                ],
                "removed": [{"offset": o, "kind": kind} for o, (kind, _) in earlier.items() if o not in view.present],
            }
            self._views[broker, partition] = view
            self._see(partition, view.present)
            self._file.write(json.dumps(line) + "\n")


def as_lists(opened: Sequence[OpenTransaction] | None) -> list[list[int]] | None:
    """Return open transactions as JSON; None if the broker does not list them."""
    return None if opened is None else [[t.producer_id, t.producer_epoch, t.first_offset] for t in opened]


def content_of(batch: Batch) -> Content:
    """Return offset and kind of each entry of a batch."""
    source = "a Fetch answer"
    if batch.is_empty:
        return ((batch.last_offset, "empty"),)
    control = marker(batch, source=source)
    if control is not None:
        return ((batch.last_offset, control.type),)
    return tuple((r.offset, DATA[r.is_tombstone]) for r in iter_records(batch, source=source))


@dataclass(eq=False)
class Poller:
    """A routine and a connection for each broker, from `start` to `close`. ``period_s``: the pause between polls."""

    runtime: Runtime
    clock: Clock
    reader: Callable[[int], ReplicaReader]
    period_s: float
    name: str
    _readers: dict[int, ReplicaReader] = field(default_factory=dict)
    _routines: list[Routine] = field(default_factory=list)

    def start(self, poll: Callable[[int, ReplicaReader], None]) -> None:
        """Poll every live broker, each in a routine. An OSError ends the connection; the next poll connects again."""
        self._routines += [
            self.clock.every(self.period_s, partial(self._poll, poll, broker), f"{self.name} of broker {broker}")
            for broker in self.runtime.brokers
        ]

    def stop(self) -> None:
        """End the routines."""
        for routine in self._routines:
            routine.stop()

    def close(self) -> None:
        """End the routines and their connections."""
        self.stop()
        for reader in self._readers.values():
            reader.close()

    def raise_if_failed(self) -> None:
        """Raise the error that ended a routine."""
        for routine in self._routines:
            routine.raise_if_failed()

    def _poll(self, poll: Callable[[int, ReplicaReader], None], broker: int) -> None:
        if not self.runtime.is_up(broker):
            return
        try:
            if broker not in self._readers:
                self._readers[broker] = self.reader(broker)
            poll(broker, self._readers[broker])
        except OSError:
            # Down, paused or booting.
            if reader := self._readers.pop(broker, None):
                reader.close()
