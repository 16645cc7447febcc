"""Reads one replica whole, in bounded memory, while it goes on living.

In turns: what is stable, which brings the list of aborted transactions (read_committed), then the rest up to the high
watermark, then what the broker says of the replica. That fits what was read if nothing was appended meanwhile; else
another turn follows, up to `TURNS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.audit.pieces import whole_entries
from harness.brokers.protocol.offsets import log_ends, log_starts
from harness.brokers.protocol.replica import (
    FETCH_VERSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ReplicaState,
    describe_producers,
    fetch,
)
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.brokers.protocol.replica import Caller, OpenTransaction, TopicPartition
    from harness.host.clock import Clock

TURNS = 3
FETCH_BYTES = 8 << 20
PATIENCE_S = 30.0
"""How long a replica may be unavailable, say while its leader changes."""

OUT_OF_RANGE = "OffsetOutOfRangeError"
PASSING = frozenset(
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
    """The offsets to read: from ``start`` on, and before ``stop`` where there is one."""

    start: int
    stop: int | None = None


@dataclass(frozen=True)
class Reading:
    """What was read of a replica, and what its broker said of it then.

    ``state`` without records. ``open``: None where the broker does not tell. ``is_settled``: nothing was appended
    between the last read and those words, so that they are about what was read.
    """

    read_from: int
    read_to: int
    state: ReplicaState
    open: tuple[OpenTransaction, ...] | None
    is_settled: bool


@dataclass(frozen=True)
class Reader:
    """Reads replicas of one broker. ``pay`` is told of every answer's bytes before the next one is asked for."""

    broker: Caller
    clock: Clock
    pay: Callable[[int], None]
    version: int = FETCH_VERSION
    fetch_bytes: int = FETCH_BYTES

    def read(
        self,
        partition: TopicPartition,
        span: Span,
        high_watermark: int,
        write: Callable[[int, memoryview, int], None],
    ) -> Reading:
        """Read a replica to the high watermark that it has then, or to the end of the span.

        ``high_watermark``: as it was known before. ``write`` is given whole batches in order: the first one's base
        offset, the bytes, and the offset after them.

        Raises `HarnessError` where the replica cannot be read on, `CorruptLogError` where it serves no batches, and
        OSError where the broker is gone.
        """
        aborted: dict[tuple[int, int], None] = {}
        stable = written = span.start
        goal = high_watermark

        def read_on(position: int, isolation: int) -> int:
            """Read from here to the goal, or to the last stable offset before it; return how far that came."""
            nonlocal written
            until = goal if span.stop is None else min(goal, span.stop)
            while position < until:
                state = self._ask(partition, position, isolation)
                if state is None:
                    position = self._where_it_starts_now(partition, position)
                    continue
                aborted.update(dict.fromkeys(state.aborted))
                source = f"Fetch answer of {partition[0]}-{partition[1]}"
                entries = [e for e in whole_entries(state.records, source) if e.last_offset >= position]
                if not entries:
                    told = state.last_stable_offset if isolation == READ_COMMITTED else state.high_watermark
                    return max(position, min(told, until))
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
            state, held, log_end = self._closing_words(partition, written)
            is_settled = log_end == written and state.last_stable_offset <= stable
            if is_settled:
                break
            goal = state.high_watermark
        said = ReplicaState(state.log_start, state.high_watermark, state.last_stable_offset, tuple(aborted), b"")
        return Reading(span.start, written, said, held, is_settled)

    def _closing_words(
        self, partition: TopicPartition, position: int
    ) -> tuple[ReplicaState, tuple[OpenTransaction, ...] | None, int]:
        """Return the replica's state, its open transactions, and then the log end, or what comes nearest to it."""
        state = self._ask(partition, position, READ_COMMITTED, max_bytes=1)
        if state is None:
            raise HarnessError(f"{partition[0]}-{partition[1]} was cut back below offset {position} while it was read")
        held = describe_producers(self.broker, [partition])[partition]
        end = log_ends(self.broker, [partition])[partition]
        return state, None if isinstance(held, str) else held, end if isinstance(end, int) else state.high_watermark

    def _ask(
        self, partition: TopicPartition, offset: int, isolation: int, max_bytes: int | None = None
    ) -> ReplicaState | None:
        """Fetch once, or until the replica is available; None where the offset is out of range."""

        def ask() -> ReplicaState | str:
            answers = fetch(
                self.broker,
                {partition: offset},
                isolation=isolation,
                max_bytes=max_bytes or self.fetch_bytes,
                version=self.version,
            )
            return answers[partition]

        answer = self.clock.wait_until(
            lambda: None if (told := ask()) in PASSING else told,
            PATIENCE_S,
            f"{partition[0]}-{partition[1]} to be available",
        )
        if isinstance(answer, ReplicaState):
            return answer
        if answer == OUT_OF_RANGE:
            return None
        raise HarnessError(f"{partition[0]}-{partition[1]} at offset {offset}: {answer}")

    def _where_it_starts_now(self, partition: TopicPartition, position: int) -> int:
        """Return the log start, which has moved past this position: retention goes on while a replica is read."""
        start = log_starts(self.broker, [partition])[partition]
        if isinstance(start, int) and start > position:
            return start
        raise HarnessError(f"{partition[0]}-{partition[1]} was cut back below offset {position} while it was read")
