"""Reads replicas of one broker, many in each request and in bounded memory, while producers and cleaners continue.

A Fetch answer has a limited size, which its first partitions may use up. So a partition without records in an answer
proves nothing, unless the whole answer has no records. Answers to read_committed list the aborted transactions, and end
at the last stable offset; the records beyond it are read under read_uncommitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from harness.audit.live.entries import complete_entries
from harness.audit.live.rate_limit import RateLimit
from harness.audit.live.spans import Span
from harness.broker_files.segments.batches import CorruptLogError
from harness.errors import WaitTimeoutError
from harness.host.clock import Clock
from harness.judge.finding import name_of
from harness.kafka_api import OUT_OF_RANGE, TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ReplicaState,
    choose_fetch_version,
    fetch,
    list_log_ends,
    list_log_starts,
)
from harness.kafka_api.transactions import OpenTransactions, describe_producers, open_transactions

Write: TypeAlias = "Callable[[int, memoryview, int], None]"
"""Stores whole batches: the first one's base offset, the bytes, and the offset after them."""


def _write_nowhere(_base_offset: int, _batches: memoryview, _next_offset: int) -> None:
    raise AssertionError


FETCH_BYTES = 8 << 20
PARTITIONS_A_REQUEST = 500
PATIENCE_S = 30.0
"""The longest time that a replica may be unavailable or behind, for example while its leader changes."""
TRANSIENT_ERRORS = frozenset(
    {
        "NotLeaderForPartitionError",
        "LeaderNotAvailableError",
        "ReplicaNotAvailableError",
        "OffsetNotAvailableError",
        "UnknownLeaderEpochError",
        "FencedLeaderEpochError",
        "UnknownTopicOrPartitionError",
    }
)


@dataclass
class ReplicaReading:
    """A replica that is being read: how far, and what its broker reports.

    ``bound``: the offset up to which replicas are compared. Every batch between ``read_from`` and ``read_to`` was
    stored. ``listed_to``: up to this offset ``aborted`` has every aborted transaction, as (producer id, first offset).
    ``state`` (without records) and ``open``: the broker's report, once it was asked; ``open`` is None where it does not
    list open transactions. ``is_complete``: whether the replica was read as far as `BrokerReader.finish` should.
    ``failure``: why the replica cannot be read on.
    """

    partition: TopicPartition
    span: Span
    bound: int
    write: Write = _write_nowhere
    read_to: int = field(init=False)
    listed_to: int = field(init=False)
    aborted: dict[tuple[int, int], None] = field(default_factory=dict)
    state: ReplicaState | None = None
    open: OpenTransactions = None
    is_complete: bool = False
    failure: str | None = None

    def __getstate__(self) -> dict[str, object]:
        """Leave ``write`` out: it is of one process."""
        return {name: value for name, value in vars(self).items() if name != "write"}

    def __post_init__(self) -> None:
        """Begin at the start of the span."""
        self.read_to = self.listed_to = self.span.start

    @property
    def read_from(self) -> int:
        """The first offset that was asked for."""
        return self.span.start

    def is_read_to(self, end: int) -> bool:
        """Return whether the replica was read to this offset, and not only a part of it."""
        return self.span.stop is None and self.read_to >= end

    def position(self, isolation: int) -> int:
        """Return the next offset to read under this isolation."""
        return self.listed_to if isolation == READ_COMMITTED else self.read_to

    def advance(self, isolation: int, offset: int) -> None:
        """Note that everything before this offset was read under this isolation."""
        self.read_to = max(self.read_to, offset)
        if isolation == READ_COMMITTED:
            self.listed_to = max(self.listed_to, offset)

    def take(self, answer: ReplicaState, isolation: int) -> bool:
        """Store the batches of an answer that are new. Return whether there are any batches to read on from.

        Raises `CorruptLogError` where the broker serves no valid batches.
        """
        self.aborted.update(dict.fromkeys(answer.aborted))
        position = self.position(isolation)
        entries = complete_entries(answer.records, f"Fetch answer of {name_of(self.partition)}")
        batches = [entry for entry in entries if entry.last_offset >= position]
        if not batches:
            return False
        stop = self.span.stop
        in_span = [batch for batch in batches if stop is None or batch.base_offset < stop]
        new = [batch for batch in in_span if batch.last_offset >= self.read_to]
        if new:
            start, end = new[0].position, new[-1].position + new[-1].size_bytes
            self.write(new[0].base_offset, memoryview(answer.records)[start:end], new[-1].last_offset + 1)
        self.advance(isolation, in_span[-1].last_offset + 1 if in_span else stop or position)
        return True


@dataclass(frozen=True)
class BrokerReader:
    """Reads replicas of one broker. ``pay`` gets the size of every answer before the next request.

    All methods raise OSError where the broker is gone, and what ``write`` and ``pay`` raise. A replica that cannot be
    read gets a ``failure``. `read_on` and `finish` yield after their requests, for a caller that empties its buffers.
    """

    broker: Connection
    clock: Clock
    pay: Callable[[int], None]
    version: int
    fetch_bytes: int

    def read_on(self, replicas: Iterable[ReplicaReading], goals: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Read each replica to its goal, an offset, or to the end of its span.

        A replica whose high watermark does not reach the goal is read to its high watermark.
        """
        replicas = list(replicas)
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            going = _Pass(isolation, {r.partition: r for r in replicas if r.failure is None}, goals)
            while going.pending:
                try:
                    self.clock.wait_until(
                        partial(self._request, going), PATIENCE_S, f"{len(going.pending)} replicas to be available"
                    )
                except WaitTimeoutError:
                    going.give_up()
                    break
                yield

    def _request(self, going: _Pass) -> bool:
        """Ask once for each pending replica; return whether any was read on, or is done."""
        going.drop_done()
        count, has_advanced = len(going.pending), False
        for asked in _portions(list(going.pending)):
            offsets = {partition: going.pending[partition].position(going.isolation) for partition in asked}
            request = fetch(offsets, isolation=going.isolation, max_bytes=self.fetch_bytes, version=self.version)
            answers = self.broker.ask(request)
            size_bytes = sum(len(answer.records) for answer in answers.values() if isinstance(answer, ReplicaState))
            if size_bytes:
                self.pay(size_bytes)
            for partition, answer in answers.items():
                if isinstance(answer, str):
                    self._note_error(going.pending[partition], answer, going.isolation, going.errors)
                else:
                    has_advanced |= going.accept(partition, answer, is_whole_answer_empty=not size_bytes)
        going.drop_done()
        return has_advanced or not going.pending or len(going.pending) < count

    def _note_error(
        self, replica: ReplicaReading, error: str, isolation: int, errors: dict[TopicPartition, str]
    ) -> None:
        """Continue at the log start offset where retention has removed what was to be read next."""
        partition, position = replica.partition, replica.position(isolation)
        if error == OUT_OF_RANGE:
            log_start = self.broker.ask(list_log_starts([partition]))[partition]
            if isinstance(log_start, int) and log_start > position:
                replica.advance(isolation, log_start)
            else:
                replica.failure = f"{name_of(partition)} was truncated below offset {position} while it was read"
        elif error in TRANSIENT_ERRORS:
            errors[partition] = error
        else:
            replica.failure = f"{name_of(partition)} at offset {position}: {error}"

    def finish(self, replicas: Iterable[ReplicaReading], ends: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Read each replica to this end, ask for its state and its open transactions, and read on to its log end.

        Transactions that ended after the report have their marker before that log end.
        """
        replicas = list(replicas)
        yield from self.read_on(
            replicas, {replica.partition: ends.get(replica.partition, replica.read_to) for replica in replicas}
        )
        healthy = {replica.partition: replica for replica in replicas if replica.failure is None}
        log_ends: dict[TopicPartition, int] = {}
        for asked in _portions(list(healthy)):
            states = self._states([healthy[partition] for partition in asked])
            producers = self.broker.ask(describe_producers(states))
            for partition, end in self.broker.ask(list_log_ends(states)).items():
                replica, state = healthy[partition], states[partition]
                replica.state, replica.open = state, open_transactions(producers[partition])
                replica.is_complete = replica.is_read_to(ends.get(partition, 0))
                if replica.is_complete:
                    log_ends[partition] = end if isinstance(end, int) else state.high_watermark
        yield from self.read_on([healthy[partition] for partition in log_ends], log_ends)
        for partition, end in log_ends.items():
            healthy[partition].is_complete = healthy[partition].is_read_to(end)

    def _states(self, replicas: Sequence[ReplicaReading]) -> dict[TopicPartition, ReplicaState]:
        """Return the state of each replica. Wait for those that are not available; the others get a ``failure``."""
        states: dict[TopicPartition, ReplicaState] = {}
        errors: dict[TopicPartition, str] = {}

        def have_all() -> bool:
            missing = {r.partition: r.read_to for r in replicas if r.failure is None and r.partition not in states}
            if not missing:
                return True
            answers = self.broker.ask(fetch(missing, max_bytes=1, version=self.version))
            for replica in replicas:
                answer = answers.get(replica.partition)
                if isinstance(answer, ReplicaState):
                    states[replica.partition] = answer
                    errors.pop(replica.partition, None)
                elif answer is not None:
                    self._note_error(replica, answer, READ_UNCOMMITTED, errors)
            return len(states) == len([replica for replica in replicas if replica.failure is None])

        try:
            self.clock.wait_until(have_all, PATIENCE_S, "the replicas to be available")
        except WaitTimeoutError:
            for replica in replicas:
                if replica.partition in errors:
                    replica.failure = f"{name_of(replica.partition)}: {errors[replica.partition]}"
        return states


def open_reader(
    connection: Connection, clock: Clock, pay: Callable[[int], None], limit: RateLimit | None
) -> BrokerReader:
    """Return a reader whose answers fit into the bucket of the rate limit."""
    fetch_bytes = FETCH_BYTES if limit is None else min(FETCH_BYTES, limit.bucket_bytes)
    return BrokerReader(connection, clock, pay, connection.ask(choose_fetch_version()), fetch_bytes)


@dataclass
class _Pass:
    """The replicas of a broker that are read to their ``goals`` under one isolation, until none is ``pending``.

    ``errors``: why replicas that may be available later were not served the last time.
    """

    isolation: int
    pending: dict[TopicPartition, ReplicaReading]
    goals: Mapping[TopicPartition, int]
    errors: dict[TopicPartition, str] = field(default_factory=dict)

    def goal(self, replica: ReplicaReading) -> int:
        """Return the offset to read to."""
        goal, stop = self.goals[replica.partition], replica.span.stop
        return goal if stop is None else min(goal, stop)

    def drop_done(self) -> None:
        """Drop the replicas that have reached their goal or cannot be read on."""
        for partition, replica in list(self.pending.items()):
            if replica.failure is not None or replica.position(self.isolation) >= self.goal(replica):
                del self.pending[partition]

    def accept(self, partition: TopicPartition, answer: ReplicaState, *, is_whole_answer_empty: bool) -> bool:
        """Take what a broker answered about a pending replica; return whether it was read on."""
        self.errors.pop(partition, None)
        replica = self.pending[partition]
        before = replica.position(self.isolation)
        try:
            has_batches = replica.take(answer, self.isolation)
        except CorruptLogError as error:
            replica.failure = str(error)
            return True
        if is_whole_answer_empty and not has_batches:
            is_committed = self.isolation == READ_COMMITTED
            end = answer.last_stable_offset if is_committed else answer.high_watermark
            replica.advance(self.isolation, min(end, self.goal(replica)))
            if is_committed:
                # There is no more until another transaction ends.
                del self.pending[partition]
        return replica.position(self.isolation) > before

    def give_up(self) -> None:
        """Note why replicas were not available; a replica that is only behind is left as it is."""
        for partition, error in self.errors.items():
            replica = self.pending[partition]
            replica.failure = f"{name_of(partition)} at offset {replica.position(self.isolation)}: {error}"


def _portions(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), PARTITIONS_A_REQUEST):
        yield partitions[start : start + PARTITIONS_A_REQUEST]
