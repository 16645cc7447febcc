"""Replicas that are out of the ISR, and since when they miss records of the leader, as far as the log shows.

No broker reports since when a replica is out of the ISR. The leader's log gives a bound: its first record at or after
the replica's log end offset has a timestamp, and the replica was behind at that time. The replica may have been out for
longer, if nothing was written at first or a cleaner has removed the first records. The headers of the missing batches
also show the next removal among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.audit.explain.knowledge import name_of
from harness.broker_files.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError
from harness.kafka_api.fetch import READ_UNCOMMITTED, ReplicaState, choose_fetch_version, fetch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harness.audit.live.cluster import AuditedCluster
    from harness.audit.live.replica_status import ReplicaStatuses
    from harness.kafka_api.messages import Caller, TopicPartition

SAMPLE_BYTES = 1 << 20
MARKER, TOMBSTONES = "marker", "tombstones"


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
    cluster: AuditedCluster, statuses: ReplicaStatuses, adding: Collection[tuple[int, TopicPartition]]
) -> tuple[Lag, ...]:
    """Return the replicas that are behind, without those that are being added.

    Redpanda's metadata lists every replica as in sync: there only replicas of brokers that do not answer are found.
    """

    def missing_batches(partition: TopicPartition, log_end: int) -> tuple[Batch, ...] | None:
        leader = cluster.state.partitions[partition].leader
        leader_status = statuses.replicas.get((leader, partition))
        if leader_status is None:
            return None
        try:
            with cluster.client.connection(leader) as connection:
                return read_batches(connection, partition, max(log_end, leader_status.log_start))
        except (OSError, HarnessError):
            # The leader is gone or has changed since its last status.
            return None

    lags = []
    for tp, state in sorted(cluster.state.partitions.items()):
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
    broker: Caller, partition: TopicPartition, offset: int, max_bytes: int = SAMPLE_BYTES
) -> tuple[Batch, ...]:
    """Return a broker's batches from an offset on, about ``max_bytes`` of them, and at least one (KIP-74).

    Raises OSError, `HarnessError` where the broker does not serve the offset, `CorruptLogError` where the answer has no
    valid batches.
    """
    version, name = broker.ask(choose_fetch_version()), name_of(partition)
    request = fetch({partition: offset}, isolation=READ_UNCOMMITTED, max_bytes=max_bytes, version=version)
    answer = broker.ask(request)[partition]
    if not isinstance(answer, ReplicaState):
        raise HarnessError(f"{name} at offset {offset}: {answer}")
    batches = until_cut(iter_batches(answer.records, source=f"Fetch answer of {name}", verify_crc=False))
    return tuple(batch for batch in batches if batch.last_offset >= offset)


@dataclass(frozen=True)
class NextRemoval:
    """The first marker or tombstones that may be removed: at ``removable_at_ms``, or by any cleaner pass after it.

    ``is_stamped``: ``removable_at_ms`` is the batch's delete horizon, which a cleaner set; else it is the earliest
    possible time.
    """

    offset: int
    kind: str
    removable_at_ms: int
    is_stamped: bool


def next_removal(batches: Iterable[Batch], window_ms: int) -> NextRemoval | None:
    """Return the first possible removal among these batches; None where no header shows any.

    ``window_ms``: from a record's write to its earliest removal. A cleaner sets the delete horizon of tombstones and
    markers at its first pass over them (KIP-534). Where no batch has a delete horizon, the oldest marker counts from
    its timestamp on. Headers do not show tombstones before a cleaner's first pass: their whole retention is left.
    """
    removals = [
        NextRemoval(
            batch.base_offset,
            MARKER if batch.is_control else TOMBSTONES,
            batch.max_timestamp_ms + window_ms if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
            is_stamped=batch.delete_horizon_ms is not None,
        )
        for batch in batches
        if not batch.is_empty and (batch.is_control or batch.delete_horizon_ms is not None)
    ]
    return min(removals, key=lambda removal: (not removal.is_stamped, removal.removable_at_ms), default=None)
