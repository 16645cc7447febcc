"""Which offsets lie between two times, as the leader of each partition has it (ListOffsets by timestamp, KIP-79)."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from harness.audit.line import Line
from harness.audit.reading import Span
from harness.brokers.protocol.offsets import LATEST, NO_SUCH_OFFSET, list_offsets
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.audit.cluster import Cluster
    from harness.brokers.protocol.replica import Caller, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock


def spans_between(
    cluster: Cluster,
    clock: Clock,
    since_ms: int | None,
    until_ms: int | None,
    dial: Callable[[Address, Clock], Line] = Line,
) -> dict[TopicPartition, Span]:
    """Return what is to be read of each partition, for records stamped from ``since_ms`` on and before ``until_ms``.

    Stamps need not rise along a log: a span begins with the first record that is late enough and ends before the first
    that is too late. What another replica still holds before that, and the leader does not, is outside.

    Raises `HarnessError` where a partition has no leader or the leader does not tell.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, state in cluster.partitions.items():
        by_leader.setdefault(state.leader, []).append(tp)
    spans = {}
    for leader, partitions in sorted(by_leader.items()):
        if leader not in cluster.brokers:
            raise HarnessError(f"--since and --until ask leaders, and {_named(partitions[0])} has none now")
        with closing(dial(cluster.brokers[leader], clock)) as line:
            ends = _offsets(line, dict.fromkeys(partitions, LATEST))
            starts = dict.fromkeys(partitions, 0) if since_ms is None else _first_at(line, partitions, since_ms, ends)
            stops = ends if until_ms is None else _first_at(line, partitions, until_ms, ends)
        for tp in partitions:
            spans[tp] = Span(starts[tp], None if until_ms is None or stops[tp] == ends[tp] else stops[tp])
    return spans


def _first_at(
    line: Caller, partitions: list[TopicPartition], time_ms: int, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = _offsets(line, dict.fromkeys(partitions, time_ms))
    return {tp: ends[tp] if offset == NO_SUCH_OFFSET else offset for tp, offset in found.items()}


def _offsets(line: Caller, times_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = {}
    for tp, offset in list_offsets(line, times_ms).items():
        if isinstance(offset, str):
            raise HarnessError(f"the leader of {_named(tp)} does not tell offsets by time: {offset}")
        found[tp] = offset
    return found


def _named(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
