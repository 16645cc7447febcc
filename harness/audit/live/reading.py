"""Reads one replica completely, in bounded memory, while producers and cleaners continue.

One turn has three steps. Read the stable part, which returns the list of aborted transactions (read_committed). Read
the rest up to the high watermark. Request the status of the replica. The status describes the records that were read if
nothing was appended meanwhile; else another turn follows, up to `TURNS`.

For the records between two times, the leader of each partition returns their offsets (ListOffsets by timestamp,
KIP-79).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.broker_files.segments.batches import LOG_OVERHEAD, MAGIC, CorruptLogError
from harness.errors import HarnessError
from harness.host.clock import Clock
from harness.judge.finding import name_of
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import OUT_OF_RANGE
from harness.kafka_api.fetch import (
    LATEST,
    NO_SUCH_OFFSET,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ReplicaState,
    fetch,
    list_log_ends,
    list_log_starts,
    list_offsets,
)
from harness.kafka_api.messages import TopicPartition
from harness.kafka_api.transactions import OpenTransaction, describe_producers, open_transactions

Write: TypeAlias = "Callable[[int, memoryview, int], None]"
"""Stores whole batches: the first one's base offset, the bytes, and the offset after them."""
TURNS = 3
FETCH_BYTES = 8 << 20
PATIENCE_S = 30.0
"""The longest time that a replica may be unavailable, for example while its leader changes."""
_ENTRY = struct.Struct(">qiib")
"""Base offset, length, leader epoch, magic: the part of the header that has the same layout in all magics."""
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
LEAST_LENGTH = 14
"""Of an entry of magic 0: CRC, magic, attributes, and two empty fields (``LegacyRecord``)."""

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


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One batch in a Fetch answer; in the old magics 0 and 1, one message, or a wrapper of several."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


@dataclass(frozen=True)
class Span:
    """The offsets to read: from ``start`` on, and before ``stop`` if it is set."""

    start: int
    stop: int | None = None


@dataclass(frozen=True)
class SpanReading:
    """The result of reading a replica, and its status at the end.

    ``state`` without records. ``open``: None where the broker does not list open transactions. ``is_settled``: nothing
    was appended between the last read and the status, so the status describes the records that were read.
    """

    read_from: int
    read_to: int
    state: ReplicaState
    open: tuple[OpenTransaction, ...] | None
    is_settled: bool


@dataclass(frozen=True)
class SpanReader:
    """Reads replicas of one broker. ``pay`` gets the size of every answer before the next request."""

    broker: Connection
    clock: Clock
    pay: Callable[[int], None]
    version: int
    fetch_bytes: int

    def read(self, partition: TopicPartition, span: Span, high_watermark: int, write: Write) -> SpanReading:
        """Read a replica to its current high watermark, or to the end of the span.

        ``high_watermark``: the last one that was seen. ``write`` is called with batches in order.

        Raises `HarnessError` where the replica cannot be read on, `CorruptLogError` where it serves no valid batches,
        and OSError where the broker is gone.
        """
        aborted: dict[tuple[int, int], None] = {}
        stable = written = span.start
        goal = high_watermark

        def read_on(position: int, isolation: int) -> int:
            """Read from a position to the goal, or to the last stable offset before it; return the new position."""
            nonlocal written
            until = goal if span.stop is None else min(goal, span.stop)
            while position < until:
                state = self._ask(partition, position, isolation)
                if state is None:
                    # Retention continues while a replica is read.
                    log_start = self.broker.ask(list_log_starts([partition]))[partition]
                    if not isinstance(log_start, int) or log_start <= position:
                        raise self._truncated(partition, position)
                    position = log_start
                    continue
                aborted.update(dict.fromkeys(state.aborted))
                source = f"Fetch answer of {name_of(partition)}"
                entries = [e for e in complete_entries(state.records, source) if e.last_offset >= position]
                if not entries:
                    end_offset = state.last_stable_offset if isolation == READ_COMMITTED else state.high_watermark
                    return max(position, min(end_offset, until))
                in_span = [e for e in entries if span.stop is None or e.base_offset < span.stop]
                position = in_span[-1].last_offset + 1 if in_span else until
                new = [e for e in in_span if e.last_offset >= written]
                if new:
                    end = new[-1].position + new[-1].size_bytes
                    written = new[-1].last_offset + 1
                    write(new[0].base_offset, memoryview(state.records)[new[0].position : end], written)
                self.pay(len(state.records))
            return position

        for _ in range(TURNS):
            stable = read_on(stable, READ_COMMITTED)
            written = max(written, read_on(max(stable, written), READ_UNCOMMITTED))
            state, open_transactions, log_end = self._final_status(partition, written)
            is_settled = log_end == written and state.last_stable_offset <= stable
            if is_settled:
                break
            goal = state.high_watermark
        final_state = ReplicaState(state.log_start, state.high_watermark, state.last_stable_offset, tuple(aborted), b"")
        return SpanReading(span.start, written, final_state, open_transactions, is_settled)

    def _final_status(
        self, partition: TopicPartition, position: int
    ) -> tuple[ReplicaState, tuple[OpenTransaction, ...] | None, int]:
        """Return the replica's state, its open transactions, and its log end offset, or else its high watermark."""
        state = self._ask(partition, position, READ_COMMITTED, max_bytes=1)
        if state is None:
            raise self._truncated(partition, position)
        producers = self.broker.ask(describe_producers([partition]))[partition]
        end = self.broker.ask(list_log_ends([partition]))[partition]
        return state, open_transactions(producers), end if isinstance(end, int) else state.high_watermark

    def _ask(
        self, partition: TopicPartition, offset: int, isolation: int, max_bytes: int | None = None
    ) -> ReplicaState | None:
        """Fetch once, or until the replica is available; None where the offset is out of range."""

        def ask() -> ReplicaState | str | None:
            size_bytes = max_bytes or self.fetch_bytes
            request = fetch({partition: offset}, isolation=isolation, max_bytes=size_bytes, version=self.version)
            answer = self.broker.ask(request)[partition]
            return None if isinstance(answer, str) and answer in TRANSIENT_ERRORS else answer

        answer = self.clock.wait_until(ask, PATIENCE_S, f"{name_of(partition)} to be available")
        if isinstance(answer, ReplicaState):
            return answer
        if answer == OUT_OF_RANGE:
            return None
        raise HarnessError(f"{name_of(partition)} at offset {offset}: {answer}")

    @staticmethod
    def _truncated(partition: TopicPartition, position: int) -> HarnessError:
        return HarnessError(f"{name_of(partition)} was truncated below offset {position} while it was read")


def complete_entries(records: bytes, source: str) -> Iterator[BatchEntry]:
    """Return the complete batches of a Fetch answer, which may end inside a batch. Their content is not parsed.

    A wrapper of magic 0 or 1 has the offset of its last message. Raises `CorruptLogError`.
    """
    position = 0
    while position + _ENTRY.size <= len(records):
        base_offset, length, _, magic = _ENTRY.unpack_from(records, position)
        size_bytes = LOG_OVERHEAD + length
        least_length = LEAST_LENGTH if magic < MAGIC else _LAST_OFFSET_DELTA_AT + _LAST_OFFSET_DELTA.size - LOG_OVERHEAD
        if length < least_length:
            raise CorruptLogError(source, position, f"impossible length {length}")
        if position + size_bytes > len(records):
            return
        delta = 0 if magic < MAGIC else _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)[0]
        if base_offset < 0 or delta < 0:
            raise CorruptLogError(source, position, f"impossible offsets: {base_offset} and {delta} more")
        yield BatchEntry(position, size_bytes, base_offset, base_offset + delta)
        position += size_bytes


def spans_between(cluster: AuditedCluster, since_ms: int | None, until_ms: int | None) -> dict[TopicPartition, Span]:
    """Return the offsets to read of each partition, for timestamps from ``since_ms`` on and before ``until_ms``.

    Timestamps need not rise along a log: a span begins with the first record that is late enough and ends before the
    first record that is too late. Records before the span that another replica still has, and the leader does not, are
    not read.

    Raises `HarnessError` where a partition has no leader or the leader does not return offsets.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, state in cluster.state.partitions.items():
        by_leader.setdefault(state.leader, []).append(tp)
    spans = {}
    for leader, partitions in sorted(by_leader.items()):
        if leader not in cluster.state.brokers:
            raise HarnessError(f"--since and --until need leaders, and {name_of(partitions[0])} has no leader now")
        with cluster.client.connection(leader, PATIENT) as connection:
            ends = _offsets(connection, dict.fromkeys(partitions, LATEST))
            starts, stops = (
                None if time_ms is None else _offsets(connection, dict.fromkeys(partitions, time_ms))
                for time_ms in (since_ms, until_ms)
            )
        for tp in partitions:
            start = 0 if starts is None else starts[tp]
            stop = None if stops is None or stops[tp] in {NO_SUCH_OFFSET, ends[tp]} else stops[tp]
            spans[tp] = Span(ends[tp] if start == NO_SUCH_OFFSET else start, stop)
    return spans


def _offsets(connection: Connection, times_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    offsets = {}
    for tp, offset in connection.ask(list_offsets(times_ms)).items():
        if isinstance(offset, str):
            raise HarnessError(f"the leader of {name_of(tp)} does not return offsets by time: {offset}")
        offsets[tp] = offset
    return offsets
