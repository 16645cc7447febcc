"""The offsets between two times, by the leader of each partition (ListOffsets by timestamp, KIP-79)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.audit.reading import Span
from harness.brokers.protocol.offsets import LATEST, NO_SUCH_OFFSET, list_offsets
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.audit.connection import ClusterClient
    from harness.brokers.protocol.replica import Caller, TopicPartition


def spans_between(client: ClusterClient, since_ms: int | None, until_ms: int | None) -> dict[TopicPartition, Span]:
    """Return the offsets to read of each partition, for timestamps from ``since_ms`` on and before ``until_ms``.

    Timestamps need not rise along a log: a span begins with the first record that is late enough and ends before the
    first record that is too late. Records before the span that another replica still has, and the leader does not, are
    not read.

    Raises `HarnessError` where a partition has no leader or the leader does not return offsets.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, state in client.cluster.partitions.items():
        by_leader.setdefault(state.leader, []).append(tp)
    spans = {}
    for leader, partitions in sorted(by_leader.items()):
        if leader not in client.cluster.brokers:
            raise HarnessError(f"--since and --until need leaders, and {_name(partitions[0])} has no leader now")
        with client.connection(leader) as connection:
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
    for tp, offset in list_offsets(connection, times_ms).items():
        if isinstance(offset, str):
            raise HarnessError(f"the leader of {_name(tp)} does not return offsets by time: {offset}")
        offsets[tp] = offset
    return offsets


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
