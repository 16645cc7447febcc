"""Replicas that are behind: those out of the ISR, and those that are being added.

No broker reports since when a replica is out of the ISR. The leader's log gives a bound: its first record at or after
the replica's log end offset has a timestamp, and the replica was behind at that time. The replica may have been out for
longer, if nothing was written at first or a cleaner has removed the first records. The headers of the missing batches
also show the next removal among them.

The copy of a replica that is being added is sampled a few seconds apart: its segments' bytes where brokers report them,
else its offsets. A throttled copy grows in steps of ``replica.fetch.max.bytes``: a copy that has not grown is sampled a
few times more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.broker_files.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError
from harness.host.clock import Clock
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import READ_UNCOMMITTED, ReplicaState, choose_fetch_version, fetch, list_log_ends
from harness.kafka_api.topics import describe_log_dirs, list_reassignments

if TYPE_CHECKING:
    from harness.audit.live.broker_reports import ReplicaStatuses
    from harness.audit.live.cluster import AuditedCluster

MISSING_BYTES = 1 << 20
MARKER, TOMBSTONES = "marker", "tombstones"
SAMPLE_S, SAMPLES = 3.0, 5
BYTES, OFFSETS = "bytes", "offsets"

Sizes: TypeAlias = "dict[tuple[int, TopicPartition, str], int]"
"""By broker, partition and unit."""


@dataclass(frozen=True)
class Lag:
    """A replica that is out of the ISR, or whose broker does not answer.

    ``missing``: the leader's batches from the replica's log end offset on, about `MISSING_BYTES` of them; None where
    they could not be read. ``why_unseen``: why the replica was not seen.
    """

    broker: int
    partition: TopicPartition
    missing: tuple[Batch, ...] | None
    why_unseen: str | None


@dataclass(frozen=True)
class CopyProgress:
    """A replica that is being added: ``done`` of ``total``, in ``unit``, and the pace a second.

    ``is_measured``: False where its broker or its leader did not describe it, so that the progress is unknown.
    """

    broker: int
    partition: TopicPartition
    unit: str = OFFSETS
    done: int = 0
    total: int = 0
    pace_s: float = 0.0
    is_measured: bool = True


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


def find_lags(
    cluster: AuditedCluster, statuses: ReplicaStatuses, adding: Collection[tuple[int, TopicPartition]]
) -> tuple[Lag, ...]:
    """Return the replicas that are behind, except those that are being added.

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
            if status is None:
                why_unseen = statuses.silent.get(broker) or statuses.unseen.get((broker, tp), "it was not seen")
                lags.append(Lag(broker, tp, None, why_unseen))
            else:
                missing = None if status.log_end is None else missing_batches(tp, status.log_end)
                lags.append(Lag(broker, tp, missing, None))
    return tuple(lags)


def read_batches(
    broker: Connection, partition: TopicPartition, offset: int, max_bytes: int = MISSING_BYTES
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


def measure_copies(cluster: AuditedCluster) -> tuple[tuple[CopyProgress, ...], tuple[str, ...]]:
    """Return the replicas that are being added, and a note where they are unknown.

    Copies take `SAMPLE_S` seconds to measure, and up to `SAMPLES` times that while one of them does not grow.
    """
    partitions, clock = cluster.state.partitions, cluster.client.clock
    try:
        listed = cluster.client.ask_any(list_reassignments(partitions))
    except (OSError, HarnessError) as error:
        return (), (str(error),)
    adding = {(broker, tp) for tp, reassignment in listed.items() for broker in reassignment.adding}
    if not adding:
        return (), ()
    leaders = {tp: partitions[tp].leader for _, tp in adding}
    replicas = adding | {(leader, tp) for tp, leader in leaders.items()}
    first, began_s, copies = _sizes(cluster, replicas), clock.now_s(), []
    for number in range(1, SAMPLES + 1):
        _wait(clock, began_s + SAMPLE_S * number)
        latest, took_s = _sizes(cluster, replicas), clock.now_s() - began_s
        copies = [_copy(replica, leaders[replica[1]], first, latest, took_s) for replica in sorted(adding)]
        if all(copy.pace_s > 0 for copy in copies if copy.is_measured):
            break
    return tuple(copies), ()


def _wait(clock: Clock, due_s: float) -> None:
    clock.wait_until(lambda: clock.now_s() >= due_s, SAMPLE_S * 2 + 1, "the next sample of the copies")


def _copy(replica: tuple[int, TopicPartition], leader: int, first: Sizes, latest: Sizes, took_s: float) -> CopyProgress:
    broker, partition = replica
    for unit in (BYTES, OFFSETS):
        total, done = latest.get((leader, partition, unit)), latest.get((broker, partition, unit))
        before = first.get((broker, partition, unit))
        if total is not None and done is not None and before is not None:
            return CopyProgress(broker, partition, unit, done, total, (done - before) / took_s)
    return CopyProgress(broker, partition, is_measured=False)


def _sizes(cluster: AuditedCluster, replicas: Collection[tuple[int, TopicPartition]]) -> Sizes:
    def ask(broker: int, caller: Connection) -> Sizes:
        partitions = [tp for b, tp in replicas if b == broker]
        ends = caller.ask(list_log_ends(partitions))
        sizes = caller.ask(describe_log_dirs(partitions)).sizes_bytes
        return {(broker, tp, BYTES): size for tp, size in sizes.items()} | {
            (broker, tp, OFFSETS): end for tp, end in ends.items() if isinstance(end, int)
        }

    answers, _ = cluster.client.ask_all({broker for broker, _ in replicas}, ask)
    return {key: value for sizes in answers.values() for key, value in sizes.items()}
