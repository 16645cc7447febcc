"""Replicas that are behind: those out of the ISR, and those that are being added.

No broker reports since when a replica is out of the ISR. The leader's log gives a bound: its first record at or after
the replica's log end offset has a timestamp, and the replica was behind at that time. The replica may have been out for
longer, if nothing was written at first or a cleaner has removed the first records. The headers of the missing batches
also show the next removal among them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from harness.audit.live.broker_reports import Replica, ReplicaStatuses, replica_statuses, sizes_bytes
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import READ_UNCOMMITTED, ReplicaState, choose_version, fetch
from harness.kafka_api.topics import list_reassignments

MISSING_BYTES = 1 << 20
MARKER, TOMBSTONES = "marker", "tombstones"
SAMPLE_S, SAMPLES = 3.0, 5
BYTES, OFFSETS = "bytes", "offsets"

Sizes: TypeAlias = dict[tuple[int, TopicPartition, str], int]
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
    cluster: AuditedCluster, topic: str, statuses: ReplicaStatuses, adding: Collection[Replica]
) -> Iterator[Lag]:
    """Yield a topic's replicas that are behind, except those that are being added, with the batches that they lack.

    Redpanda's metadata lists every replica as in sync: there only replicas of brokers that do not answer are found.
    """
    for number, state in cluster.state.topics[topic].partitions.items():
        tp = topic, number
        for broker in state.replicas:
            status, led = statuses.replicas.get((broker, tp)), statuses.replicas.get((state.leader, tp))
            if (broker, tp) in adding:
                continue
            if status is None:
                why_unseen = statuses.silent.get(broker) or statuses.unseen.get((broker, tp), "it was not seen")
                yield Lag(broker, tp, None, why_unseen)
            elif broker not in state.isr:
                missing = None
                if led is not None and status.log_end is not None:
                    missing = read_batches(cluster, state.leader, tp, max(status.log_end, led.log_start))
                yield Lag(broker, tp, missing, None)


def read_batches(
    cluster: AuditedCluster, broker: int, tp: TopicPartition, offset: int, max_bytes: int = MISSING_BYTES
) -> tuple[Batch, ...] | None:
    """Return a broker's batches from an offset on, about ``max_bytes`` of them, and at least one (KIP-74).

    None where the broker is gone, does not serve the offset any more, or serves no valid batches.
    """
    try:
        with cluster.client.connection(broker) as caller:
            version = caller.ask(choose_version())
            request = fetch({tp: offset}, isolation=READ_UNCOMMITTED, max_bytes=max_bytes, version=version)
            answer = caller.ask(request)[tp]
        if not isinstance(answer, ReplicaState):
            return None
        batches = until_cut(iter_batches(answer.records, source=name_of(tp), verify_crc=False))
        return tuple(batch for batch in batches if batch.last_offset >= offset)
    except (OSError, HarnessError):
        return None


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


def measure_copies(cluster: AuditedCluster) -> tuple[list[CopyProgress], tuple[str, ...]]:
    """Return the replicas that are being added, and a note where they are unknown.

    Copies are sampled `SAMPLE_S` seconds apart: the bytes of their segments where brokers report them, else their
    offsets. A throttled copy grows in steps of ``replica.fetch.max.bytes``: while a copy has not grown, there are up to
    `SAMPLES` samples.
    """
    partitions, clock = cluster.state.partitions, cluster.client.clock
    try:
        listed = cluster.client.ask_any(list_reassignments(partitions))
    except (OSError, HarnessError) as error:
        return [], (str(error),)
    adding = {(broker, tp) for tp, reassignment in listed.items() for broker in reassignment.adding}
    copies: list[CopyProgress] = []
    if not adding:
        return copies, ()
    leaders = {tp: partitions[tp].leader for _, tp in adding}
    replicas = adding | {(leader, tp) for tp, leader in leaders.items()}
    first, began_s = _sizes(cluster, replicas), clock.now_s()
    for number in range(1, SAMPLES + 1):
        is_due = partial(lambda due_s: clock.now_s() >= due_s, began_s + SAMPLE_S * number)
        clock.wait_until(is_due, SAMPLE_S * 2 + 1, "the next sample of the copies")
        latest, took_s = _sizes(cluster, replicas), clock.now_s() - began_s
        copies = [_copy(replica, leaders[replica[1]], first, latest, took_s) for replica in sorted(adding)]
        if all(copy.pace_s > 0 for copy in copies if copy.is_measured):
            break
    return copies, ()


def _copy(replica: Replica, leader: int, first: Sizes, latest: Sizes, took_s: float) -> CopyProgress:
    broker, partition = replica
    for unit in (BYTES, OFFSETS):
        total, done = latest.get((leader, partition, unit)), latest.get((broker, partition, unit))
        before = first.get((broker, partition, unit))
        if total is not None and done is not None and before is not None:
            return CopyProgress(broker, partition, unit, done, total, (done - before) / took_s)
    return CopyProgress(broker, partition, is_measured=False)


def _sizes(cluster: AuditedCluster, replicas: Collection[Replica]) -> Sizes:
    statuses = replica_statuses(cluster, {tp for _, tp in replicas}).replicas
    ends = {(*r, OFFSETS): status.log_end for r, status in statuses.items() if status.log_end is not None}
    return ends | {(*replica, BYTES): size for replica, size in sizes_bytes(cluster, replicas).items()}
