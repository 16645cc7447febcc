"""Reads replicas of one broker, many in each request and in bounded memory, while producers and cleaners continue.

A Fetch answer has a limited size, which its first partitions may use up. So a partition without records in an answer
proves nothing, unless the whole answer has no records. Answers to read_committed list the aborted transactions, and end
at the last stable offset; the records beyond it are read under read_uncommitted.
"""

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import kafka.errors

from harness.audit.live.broker_reports import Span
from harness.broker_files.segments.batches import LOG_OVERHEAD, MAGIC, CorruptLogError
from harness.broker_files.segments.records import MAX_INT64
from harness.errors import WaitTimeoutError
from harness.host.clock import Clock
from harness.judge.finding import name_of
from harness.kafka_api import OUT_OF_RANGE, TopicPartition
from harness.kafka_api import fetch as fetch_api
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import READ_COMMITTED, READ_UNCOMMITTED, ReplicaState, fetch, list_log_ends
from harness.kafka_api.transactions import OpenTransactions, describe_producers, open_transactions

FETCH_BYTES = 8 << 20
PARTITIONS_A_REQUEST = 500
PATIENCE_S = 30.0
"""The longest time that a replica may be unavailable or behind, for example while its leader changes."""
BURST_S, SLACK_S = 1.0, 60.0
"""Of a rate limit. A wait that ends later than planned by more than the slack has failed."""
_ENTRY = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: the part of the header that has the same layout in all magics."""
_LAST_OFFSET_DELTA, _LAST_OFFSET_DELTA_AT = struct.Struct(">i"), 23
_LEAST_BYTES = _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size
LEAST_OLD_BYTES = LOG_OVERHEAD + 14
"""Of an entry of magic 0: CRC, magic, attributes, and two empty fields (``LegacyRecord``)."""


class RateLimit:
    """One rate limit for all brokers together: a token bucket by the generic cell rate algorithm (ITU-T I.371).

    The size of an answer is known only after it arrives. So each reader pays for its answers afterwards, with a wait of
    its own, in order. Safe to share between threads.
    """

    def __init__(self, rate_bytes_s: int, clock: Clock) -> None:
        """Begin with a full bucket, of `BURST_S` seconds' worth: the most bytes to request at a time."""
        self._rate_bytes_s, self._clock = rate_bytes_s, clock
        self._lock = threading.Lock()
        self._full_at_s = clock.now_s()
        self.bucket_bytes = max(int(rate_bytes_s * BURST_S), 1)

    def pay(self, size_bytes: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows so many bytes or ``is_over``. Raises `TimeLimitError` as every wait does."""
        with self._lock:
            now_s = self._clock.now_s()
            self._full_at_s = max(self._full_at_s, now_s) + size_bytes / self._rate_bytes_s
            paid_at_s = self._full_at_s - BURST_S
        timeout_s = max(paid_at_s - now_s, 0.0) + SLACK_S
        self._clock.wait_until(lambda: is_over() or self._clock.now_s() >= paid_at_s, timeout_s, "the rate limit")


class BatchEntry(NamedTuple):
    """One batch in a Fetch answer; in the old magics 0 and 1, one message, or a wrapper of several."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def complete_entries(records: bytes, source: str) -> Iterator[BatchEntry]:
    """Return the complete batches of a Fetch answer, which may end inside a batch. Their content is not parsed.

    A wrapper of magic 0 or 1 has the offset of its last message. Raises `CorruptLogError`.
    """
    position = 0
    while position + _ENTRY.size <= len(records):
        base_offset, length, _, magic = _ENTRY.unpack_from(records, position)
        size_bytes = LOG_OVERHEAD + length
        if size_bytes < (LEAST_OLD_BYTES if magic < MAGIC else _LEAST_BYTES):
            raise CorruptLogError(source, position, f"impossible length {length}")
        if position + size_bytes > len(records):
            return
        delta = 0 if magic < MAGIC else _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)[0]
        if base_offset < 0 or delta < 0:
            raise CorruptLogError(source, position, f"impossible offsets: {base_offset} and {delta} more")
        yield BatchEntry(position, size_bytes, base_offset, base_offset + delta)
        position += size_bytes


@dataclass
class ReplicaReading:
    """A replica that is being read: how far, and what its broker reports.

    ``bound``: the offset up to which replicas are compared. Every batch from the start of the ``span`` to ``read_to``
    was written. ``listed_to``: up to this offset ``aborted`` has every aborted transaction, as (producer id, first
    offset). ``state`` (without records) and ``open``: the broker's report, once it was asked; ``open`` is None where it
    does not list open transactions. ``is_complete``: whether the replica was read as far as `BrokerReader.finish`
    should. ``error``: why the replica was not available the last time; ``failure``: why it cannot be read on.
    """

    partition: TopicPartition
    span: Span
    bound: int
    read_to: int = field(init=False)
    listed_to: int = field(init=False)
    aborted: dict[tuple[int, int], None] = field(default_factory=dict)
    state: ReplicaState | None = None
    open: OpenTransactions = None
    is_complete: bool = False
    error: str | None = None
    failure: str | None = None

    def __post_init__(self) -> None:
        """Begin at the start of the span."""
        self.read_to = self.listed_to = self.span.start

    def is_read_to(self, end: int) -> bool:
        """Return whether the replica was read to this offset, and not only a part of it."""
        return self.span.stop == MAX_INT64 and self.read_to >= end

    def position(self, isolation: int) -> int:
        """Return the next offset to read under this isolation."""
        return self.listed_to if isolation == READ_COMMITTED else self.read_to

    def advance(self, isolation: int, offset: int) -> None:
        """Note that everything before this offset was read under this isolation."""
        self.read_to = max(self.read_to, offset)
        if isolation == READ_COMMITTED:
            self.listed_to = max(self.listed_to, offset)

    def give_up(self) -> None:
        """Fail where the replica was not available; a replica that is only behind is left as it is."""
        if self.error is not None:
            self.failure = f"{name_of(self.partition)} at offset {self.read_to}: {self.error}"


Write: TypeAlias = Callable[[ReplicaReading, int, memoryview, int], None]
"""Writes whole batches of a replica: the first one's base offset, the bytes, and the offset after them."""


@dataclass(frozen=True)
class BrokerReader:
    """Reads replicas of one broker. ``pay`` gets the size of every answer before the next request.

    All methods raise OSError where the broker is gone, and what ``write`` and ``pay`` raise. A replica that cannot be
    read gets a ``failure``. `read_on` and `finish` yield after their requests, for a caller that empties its buffers.
    """

    broker: Connection
    clock: Clock
    write: Write
    pay: Callable[[int], None]
    version: int
    fetch_bytes: int

    def read_on(self, replicas: Iterable[ReplicaReading], goals: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Read each replica to its goal, an offset, or to the end of its span.

        A replica whose high watermark does not reach the goal is read to its high watermark.
        """
        replicas = [replica for replica in replicas if replica.failure is None]
        ends = {r.partition: min(goals[r.partition], r.span.stop) for r in replicas}
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            pending = {replica.partition: replica for replica in replicas}
            request = partial(self._request, pending, ends, isolation)
            _drop_done(pending, ends, isolation)
            while pending:
                try:
                    self.clock.wait_until(request, PATIENCE_S, f"{len(pending)} replicas to be available")
                except WaitTimeoutError:
                    for replica in pending.values():
                        replica.give_up()
                    break
                yield

    def _request(
        self, pending: dict[TopicPartition, ReplicaReading], ends: Mapping[TopicPartition, int], isolation: int
    ) -> bool:
        """Ask once for each pending replica; return whether any was read on, or is done."""
        positions = {partition: replica.position(isolation) for partition, replica in pending.items()}
        for asked in _portions(list(positions)):
            offsets = {partition: positions[partition] for partition in asked}
            request = fetch(offsets, isolation=isolation, max_bytes=self.fetch_bytes, version=self.version)
            answers = self.broker.ask(request)
            size_bytes = sum(len(answer.records) for answer in answers.values() if isinstance(answer, ReplicaState))
            if size_bytes:
                self.pay(size_bytes)
            for partition, answer in answers.items():
                replica = pending[partition]
                if isinstance(answer, str):
                    self._note_error(replica, answer, isolation)
                elif not self._take(replica, answer, isolation) and not size_bytes:
                    is_committed = isolation == READ_COMMITTED
                    end = answer.last_stable_offset if is_committed else answer.high_watermark
                    replica.advance(isolation, min(end, ends[partition]))
                    if is_committed:
                        # There is no more until another transaction ends.
                        del pending[partition]
        _drop_done(pending, ends, isolation)
        return not pending or positions != {tp: replica.position(isolation) for tp, replica in pending.items()}

    def _take(self, replica: ReplicaReading, answer: ReplicaState, isolation: int) -> bool:
        """Write the batches of an answer that are new. Return False if there are no batches to read on from."""
        replica.error = None
        replica.aborted.update(dict.fromkeys(answer.aborted))
        position, stop = replica.position(isolation), replica.span.stop
        entries = complete_entries(answer.records, f"Fetch answer of {name_of(replica.partition)}")
        try:
            batches = [entry for entry in entries if entry.last_offset >= position]
        except CorruptLogError as error:
            replica.failure = str(error)
            return True
        in_span = [batch for batch in batches if batch.base_offset < stop]
        new = [batch for batch in in_span if batch.last_offset >= replica.read_to]
        if new:
            data = memoryview(answer.records)[new[0].position : new[-1].position + new[-1].size_bytes]
            self.write(replica, new[0].base_offset, data, new[-1].last_offset + 1)
        if batches:
            replica.advance(isolation, in_span[-1].last_offset + 1 if in_span else stop)
        return bool(batches)

    def _note_error(self, replica: ReplicaReading, error: str, isolation: int) -> None:
        """Continue at the log start offset where retention has removed what was to be read next."""
        partition, position = replica.partition, replica.position(isolation)
        if error == OUT_OF_RANGE:
            log_start = self.broker.ask(fetch_api.list_log_starts([partition]))[partition]
            if isinstance(log_start, int) and log_start > position:
                replica.advance(isolation, log_start)
            else:
                replica.failure = f"{name_of(partition)} was truncated below offset {position} while it was read"
        elif getattr(getattr(kafka.errors, error, None), "retriable", False):
            replica.error = error
        else:
            replica.failure = f"{name_of(partition)} at offset {position}: {error}"

    def finish(self, replicas: Iterable[ReplicaReading], ends: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Read each replica to this end, ask for its state and its open transactions, and read on to its log end.

        Transactions that ended after the report have their marker before that log end.
        """
        replicas = list(replicas)
        yield from self.read_on(replicas, {r.partition: ends.get(r.partition, r.read_to) for r in replicas})
        healthy = {replica.partition: replica for replica in replicas if replica.failure is None}
        log_ends: dict[TopicPartition, int] = {}
        for asked in _portions(list(healthy)):
            self._ask_states([healthy[partition] for partition in asked])
            states = {partition: state for partition in asked if (state := healthy[partition].state) is not None}
            producers = self.broker.ask(describe_producers(states))
            for partition, end in self.broker.ask(list_log_ends(states)).items():
                replica = healthy[partition]
                replica.open = open_transactions(producers[partition])
                replica.is_complete = partition in ends and replica.is_read_to(ends[partition])
                if replica.is_complete:
                    log_ends[partition] = end if isinstance(end, int) else states[partition].high_watermark
        yield from self.read_on([healthy[partition] for partition in log_ends], log_ends)
        for partition, end in log_ends.items():
            healthy[partition].is_complete = healthy[partition].is_read_to(end)

    def _ask_states(self, replicas: Sequence[ReplicaReading]) -> None:
        """Ask for the state of each replica. Wait for those that are not available; the others get a ``failure``."""

        def have_all() -> bool:
            missing = {r.partition: r for r in replicas if r.failure is None and r.state is None}
            offsets = {partition: replica.read_to for partition, replica in missing.items()}
            request = fetch(offsets, max_bytes=1, version=self.version)
            for partition, answer in self.broker.ask(request).items() if missing else ():
                if isinstance(answer, ReplicaState):
                    missing[partition].state, missing[partition].error = answer, None
                else:
                    self._note_error(missing[partition], answer, READ_UNCOMMITTED)
            return all(replica.state is not None for replica in replicas if replica.failure is None)

        try:
            self.clock.wait_until(have_all, PATIENCE_S, "the replicas to be available")
        except WaitTimeoutError:
            for replica in replicas:
                replica.give_up()


def open_reader(
    connection: Connection, clock: Clock, write: Write, pay: Callable[[int], None], limit: RateLimit | None
) -> BrokerReader:
    """Return a reader whose answers fit into the bucket of the rate limit."""
    fetch_bytes = FETCH_BYTES if limit is None else min(FETCH_BYTES, limit.bucket_bytes)
    return BrokerReader(connection, clock, write, pay, connection.ask(fetch_api.choose_version()), fetch_bytes)


def _drop_done(
    pending: dict[TopicPartition, ReplicaReading], ends: Mapping[TopicPartition, int], isolation: int
) -> None:
    """Drop the replicas that have reached their end or cannot be read on."""
    for partition, replica in list(pending.items()):
        if replica.failure is not None or replica.position(isolation) >= ends[partition]:
            del pending[partition]


def _portions(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), PARTITIONS_A_REQUEST):
        yield partitions[start : start + PARTITIONS_A_REQUEST]
