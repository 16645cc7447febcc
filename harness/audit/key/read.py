"""Reads the replicas of a key's partitions, from their own brokers or from copies of disks.

A running cluster is read as by `harness.audit.live.spool`, without a spool: every replica to the bound, and only then
further, to what any replica has by then. A difference may still be the work of a cleaner that ran meanwhile: where the
replicas differ they are read again, and only a difference that stays the same is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from kafka.partitioner.default import murmur2

from checkers.evidence.copies import replica_facts
from harness.audit.cleaning import RemovalSettings, cleaning_of, read_settings
from harness.audit.key.compare import Comparison, compare
from harness.audit.key.log import KeyLog, KeyReplica, read_copy
from harness.audit.live.broker_reports import ask_coordinators, replica_statuses
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.rate_limit import RateLimit
from harness.audit.live.reading import ReplicaReading
from harness.audit.live.spans import Span
from harness.audit.live.spool import ReadingProgress, SpoolOptions, bound_of, read_all
from harness.broker_files.copies.copies import find_copies
from harness.errors import HarnessError, UsageError
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition

READINGS: Final = 3
_SIGN: Final = 0x7FFFFFFF


@dataclass(frozen=True)
class KeyPartition:
    """One partition: its replicas, and their comparison.

    ``leader``: None for copies. ``ids``: transactional ids by producer. ``now_ms``: this host's; None for copies.
    """

    place: TopicPartition
    replicas: tuple[KeyReplica, ...]
    comparison: Comparison
    settings: RemovalSettings
    leader: int | None = None
    ids: Mapping[int, str] = field(default_factory=dict)
    now_ms: int | None = None


def usual_partitions(key: bytes, count: int) -> list[int]:
    """Return where producers write a key: Java's (murmur2, ``BuiltInPartitioner``) and librdkafka's (CRC-32)."""
    return sorted({(murmur2(key) & _SIGN) % count, crc32(key) % count})


def read_live(
    cluster: AuditedCluster, key: bytes, places: Sequence[TopicPartition], limit: RateLimit | None = None
) -> list[KeyPartition]:
    """Read these partitions of a running cluster, one after the other. Raises `HarnessError`."""
    return [_read_settled(cluster, key, place, limit) for place in places]


def _read_settled(cluster: AuditedCluster, key: bytes, place: TopicPartition, limit: RateLimit | None) -> KeyPartition:
    before: list[str] | None = None
    for _ in range(READINGS):
        read = _read_partition(cluster, key, place, limit)
        differences = read.comparison.differences
        if not differences or differences == before:
            return read
        before = differences
    doubts = [f"{text} (not the same in {READINGS} readings)" for text in before or ()]
    return replace(read, comparison=Comparison([], [*read.comparison.doubts, *doubts]))


def _read_partition(
    cluster: AuditedCluster, key: bytes, place: TopicPartition, limit: RateLimit | None
) -> KeyPartition:
    statuses, assigned = replica_statuses(cluster, {place}), cluster.state.partitions[place]
    replicas = dict(statuses.by_partition.get(place, {}))
    unread = {broker: why for (broker, _), why in statuses.unseen.items()}
    unread |= {broker: why for broker, why in statuses.silent.items() if broker in assigned.replicas}
    logs = {broker: KeyLog(key, status.log_start) for broker, status in replicas.items()}
    bound = bound_of(replicas.values()) if replicas else 0
    readings = {(broker, place): _reading(place, log, bound) for broker, log in logs.items()}
    with ExitStack() as stack:
        read_all(cluster, readings, ReadingProgress({}, {}, SpoolOptions(limit)), stack)
    read: list[KeyReplica] = []
    for (broker, _), reading in readings.items():
        if reading.failure is None and (state := reading.state) is not None:
            offsets = state.high_watermark, state.last_stable_offset
            read.append(KeyReplica(broker, logs[broker], *offsets, reading.is_complete))
        else:
            unread[broker] = reading.failure or "its broker did not report its state"
    producers = {p for r in read for p in (*r.log.opened, *(k.producer_id for k in r.log.records)) if p is not None}
    described = ask_coordinators(cluster, producers).by_producer
    return _partition(
        place,
        read,
        unread,
        read_settings(cluster.settings.get(place[0])),
        leader=assigned.leader,
        ids={producer: description.transactional_id for producer, description in described.items()},
        now_ms=cluster.client.clock.time_ms(),
    )


def _reading(place: TopicPartition, log: KeyLog, bound: int) -> ReplicaReading:
    source = f"Fetch answer of {name_of(place)}"

    def write(_base_offset: int, batches: memoryview, _next_offset: int) -> None:
        log.read(BytesIO(batches), source)

    return ReplicaReading(place, Span(log.log_start), bound, write)


def read_copies(
    brokers: Mapping[int, Sequence[Path]], topic: str, key: bytes, numbers: Iterable[int]
) -> tuple[list[KeyPartition], tuple[str, ...]]:
    """Read copied replicas of these partitions, or of all, and return the notes on the copies, too.

    Raises `UsageError` as `find_copies`, and for a partition that was not copied.
    """
    copies, chosen = find_copies(brokers, [topic], "key"), set(numbers)
    if missing := chosen - {copy.partition for copy in copies.replicas}:
        raise UsageError(f"--partition {min(missing)}: no folder has a replica of {topic}-{min(missing)}")
    own = {} if copies.metadata is None else copies.metadata.settings.get(topic, {})
    settings, partitions = read_settings(own), []
    for place in sorted({copy.place for copy in copies.replicas if not chosen or copy.partition in chosen}):
        replicas: list[KeyReplica] = []
        unread: dict[int, str] = {}
        for copy in (copy for copy in copies.replicas if copy.place == place):
            try:
                facts = replica_facts(copy.folder)
                log = KeyLog(key, max(facts["log_start"] or 0, facts["start_checkpoint"] or 0))
                read_copy(copy, log)
                stable = min(log.opened.values(), default=log.end)
                high_watermark = log.end if facts["high_watermark"] is None else facts["high_watermark"]
                work = cleaning_of(copy, stable, settings)
            except (OSError, HarnessError) as error:
                unread[copy.broker] = str(error)
                continue
            replicas.append(KeyReplica(copy.broker, log, min(high_watermark, log.end), stable, work=work))
        partitions.append(_partition(place, replicas, unread, settings))
    return partitions, copies.notes


def _partition(
    place: TopicPartition,
    replicas: Iterable[KeyReplica],
    unread: Mapping[int, str],
    settings: RemovalSettings,
    **fields: Any,
) -> KeyPartition:
    by_broker = tuple(sorted(replicas, key=lambda replica: replica.broker))
    result = compare(by_broker)
    result.doubts += [f"the replica of broker {broker} was not read: {why}" for broker, why in sorted(unread.items())]
    return KeyPartition(place, by_broker, result, settings, **fields)
