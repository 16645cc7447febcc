"""Reads one whole replica, in bounded memory, while producers and cleaners go on.

One turn has three steps. Read the stable part, which returns the list of aborted transactions (read_committed). Read
the rest up to the high watermark. Ask the broker for the status of the replica. The status fits what was read if
nothing was appended meanwhile; else another turn follows, up to `TURNS`.

Where only the records between two times are wanted, the leader of each partition returns their offsets (ListOffsets by
timestamp, KIP-79).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.explain.knowledge import name_of
from harness.audit.live.cluster import PATIENT
from harness.audit.live.pieces import whole_entries
from harness.errors import HarnessError
from harness.kafka_api.error_names import OUT_OF_RANGE
from harness.kafka_api.fetch import (
    FETCH_VERSION,
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
from harness.kafka_api.transactions import describe_producers, open_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.audit.live.cluster import AuditedCluster
    from harness.host.clock import Clock
    from harness.kafka_api.messages import Caller, TopicPartition
    from harness.kafka_api.transactions import OpenTransaction

Write: TypeAlias = "Callable[[int, memoryview, int], None]"
"""Stores whole batches: the first one's base offset, the bytes, and the offset after them."""
TURNS = 3
FETCH_BYTES = 8 << 20
PATIENCE_S = 30.0
"""How long a replica may be unavailable, for example while its leader changes."""

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


@dataclass(frozen=True)
class Span:
    """The offsets to read: from ``start`` on, and before ``stop`` if it is set."""

    start: int
    stop: int | None = None


@dataclass(frozen=True)
class SpanReading:
    """The result of reading a replica, and its status at the end.

    ``state`` without records. ``open``: None where the broker does not list open transactions. ``is_settled``: nothing
    was appended between the last read and the status, so the status is about what was read.
    """

    read_from: int
    read_to: int
    state: ReplicaState
    open: tuple[OpenTransaction, ...] | None
    is_settled: bool


@dataclass(frozen=True)
class SpanReader:
    """Reads replicas of one broker. ``pay`` gets the size of every answer before the next request."""

    broker: Caller
    clock: Clock
    pay: Callable[[int], None]
    version: int = FETCH_VERSION
    fetch_bytes: int = FETCH_BYTES

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
                    position = self._moved_log_start(partition, position)
                    continue
                aborted.update(dict.fromkeys(state.aborted))
                source = f"Fetch answer of {name_of(partition)}"
                entries = [e for e in whole_entries(state.records, source) if e.last_offset >= position]
                if not entries:
                    end_offset = state.last_stable_offset if isolation == READ_COMMITTED else state.high_watermark
                    return max(position, min(end_offset, until))
                wanted = [e for e in entries if span.stop is None or e.base_offset < span.stop]
                position = wanted[-1].last_offset + 1 if wanted else until
                new = [e for e in wanted if e.last_offset >= written]
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
            raise HarnessError(f"{name_of(partition)} was truncated below offset {position} while it was read")
        producers = self.broker.ask(describe_producers([partition]))[partition]
        end = self.broker.ask(list_log_ends([partition]))[partition]
        return (
            state,
            open_transactions(producers),
            end if isinstance(end, int) else state.high_watermark,
        )

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

    def _moved_log_start(self, partition: TopicPartition, position: int) -> int:
        """Return the log start offset, which has passed this position: retention goes on while a replica is read."""
        start = self.broker.ask(list_log_starts([partition]))[partition]
        if isinstance(start, int) and start > position:
            return start
        raise HarnessError(f"{name_of(partition)} was truncated below offset {position} while it was read")


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
            starts = (
                dict.fromkeys(partitions, 0) if since_ms is None else _first_at(connection, partitions, since_ms, ends)
            )
            stops = ends if until_ms is None else _first_at(connection, partitions, until_ms, ends)
        for tp in partitions:
            spans[tp] = Span(starts[tp], None if until_ms is None or stops[tp] == ends[tp] else stops[tp])
    return spans


def _first_at(
    connection: Caller, partitions: list[TopicPartition], time_ms: int, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    offsets = _offsets(connection, dict.fromkeys(partitions, time_ms))
    return {tp: ends[tp] if offset == NO_SUCH_OFFSET else offset for tp, offset in offsets.items()}


def _offsets(connection: Caller, times_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    offsets = {}
    for tp, offset in connection.ask(list_offsets(times_ms)).items():
        if isinstance(offset, str):
            raise HarnessError(f"the leader of {name_of(tp)} does not return offsets by time: {offset}")
        offsets[tp] = offset
    return offsets
