"""Replicas that are out of the ISR, and since when they miss records of the leader, as far as the log shows.

No broker reports since when a replica is out of the ISR. The leader's log gives a bound: its first record at or after
the replica's log end offset has a timestamp, and the replica was behind at that time. The replica may have been out for
longer, if nothing was written at first or a cleaner has removed the first records.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.audit.connection import fetch_version, quick_connection
from harness.brokers.protocol.replica import FETCH_VERSION, READ_UNCOMMITTED, ReplicaState, fetch
from harness.brokers.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harness.audit.cluster import Cluster
    from harness.audit.connection import ReconnectingConnection
    from harness.audit.replica_status import ReplicaStatuses
    from harness.brokers.protocol.replica import Caller, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True)
class Lag:
    """A replica that is out of the ISR, or whose broker does not answer.

    ``log_end``: None where it is unknown. ``missing``: the leader's batches from there on, about `SAMPLE_BYTES` of
    them; None where they could not be read. ``why_unseen``: why the replica was not seen.
    """

    broker: int
    partition: TopicPartition
    log_end: int | None
    missing: tuple[Batch, ...] | None
    why_unseen: str | None

    @property
    def missing_since_ms(self) -> int | None:
        """When the first missing batch was written; None where no batch is missing or that batch has no timestamp."""
        if not self.missing or self.missing[0].max_timestamp_ms < 0:
            return None
        return self.missing[0].max_timestamp_ms

    @property
    def by_brokers_clock(self) -> bool:
        """Whether the leader set that timestamp; else a producer did, and producers' clocks may be wrong."""
        first = self.missing[0] if self.missing else None
        return first is not None and first.timestamp_type == "append"


def find_lags(
    cluster: Cluster,
    statuses: ReplicaStatuses,
    adding: Collection[tuple[int, TopicPartition]],
    clock: Clock,
    dial: Callable[[Address, Clock], ReconnectingConnection] = quick_connection,
) -> tuple[Lag, ...]:
    """Return the replicas that are behind, without those that are being added.

    Redpanda's metadata lists every replica as in sync: there only replicas of brokers that do not answer are found.
    """

    def missing_batches(partition: TopicPartition, log_end: int) -> tuple[Batch, ...] | None:
        leader = cluster.partitions[partition].leader
        leader_status = statuses.replicas.get((leader, partition))
        if leader_status is None:
            return None
        try:
            with closing(dial(cluster.brokers[leader], clock)) as connection:
                return read_batches(
                    connection, partition, max(log_end, leader_status.log_start), fetch_version(connection)
                )
        except (OSError, HarnessError):
            # The leader is gone or has changed since its last status.
            return None

    lags = []
    for tp, state in sorted(cluster.partitions.items()):
        for broker in state.replicas:
            status = statuses.replicas.get((broker, tp))
            if (broker, tp) in adding or (status is not None and broker in state.isr):
                continue
            why_unseen = (
                None if status else statuses.silent.get(broker) or statuses.unseen.get((broker, tp), "it was not seen")
            )
            log_end = status.log_end if status else None
            lags.append(Lag(broker, tp, log_end, None if log_end is None else missing_batches(tp, log_end), why_unseen))
    return tuple(lags)


def read_batches(
    broker: Caller,
    partition: TopicPartition,
    offset: int,
    version: int = FETCH_VERSION,
    max_bytes: int = SAMPLE_BYTES,
) -> tuple[Batch, ...]:
    """Return a broker's batches from an offset on, about ``max_bytes`` of them, and at least one (KIP-74).

    Raises OSError, `HarnessError` where the broker does not serve the offset, `CorruptLogError` where the answer has no
    valid batches.
    """
    answers = fetch(broker, {partition: offset}, isolation=READ_UNCOMMITTED, max_bytes=max_bytes, version=version)
    answer, name = answers[partition], f"{partition[0]}-{partition[1]}"
    if not isinstance(answer, ReplicaState):
        raise HarnessError(f"{name} at offset {offset}: {answer}")
    batches = until_cut(iter_batches(answer.records, source=f"Fetch answer of {name}", verify_crc=False))
    return tuple(batch for batch in batches if batch.last_offset >= offset)
