"""The offsets to read of each partition, also for the records between two times.

The leader of each partition returns offsets by time (ListOffsets by timestamp, KIP-79).
"""

from collections.abc import Collection
from dataclasses import dataclass

from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.errors import HarnessError
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import LATEST, NO_SUCH_OFFSET, list_offsets


@dataclass(frozen=True)
class Span:
    """The offsets to read: from ``start`` on, and before ``stop`` if it is set."""

    start: int
    stop: int | None = None


def spans_between(
    cluster: AuditedCluster,
    since_ms: int | None,
    until_ms: int | None,
    places: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, Span]:
    """Return the offsets to read of each partition, for timestamps from ``since_ms`` on and before ``until_ms``.

    Timestamps need not rise along a log: a span begins with the first record that is late enough and ends before the
    first record that is too late. Records before the span that another replica still has, and the leader does not, are
    not read. ``places``: these partitions only.

    Raises `HarnessError` where a partition has no leader or the leader does not return offsets.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in cluster.state.partitions if places is None else places:
        by_leader.setdefault(cluster.state.partitions[tp].leader, []).append(tp)
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
