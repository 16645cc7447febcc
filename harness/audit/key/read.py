"""Reads the replicas of a key's partitions, from their own brokers or from copies of disks, and compares them.

A running cluster is read as by `harness.audit.live.spool`, without a spool. A difference may still be the work of a
cleaner that ran meanwhile: where the replicas differ they are read again, and only a difference that stays the same is
one. The rules are those of the checkers: `checkers.anomalies` (two replicas give a transaction different outcomes, or
one replica still has open what another has ended), `checkers.replay.truth` (up to the bound, the newest committed
record of a key is missing on a replica, or a replica serves a value that another replica has deleted). Legal are a
tombstone or a superseded value that another replica has removed, and offsets before a log start offset.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Final
from zlib import crc32

from kafka.partitioner.default import murmur2

from checkers.evidence.copies import replica_facts
from checkers.replay.batch_outcomes import ABORTED
from harness.audit.cleaning import cleaning_of
from harness.audit.key.log import KeyLog, KeyRecord, KeyReplica, read_copy
from harness.audit.live.broker_reports import Span, ask_coordinators, replica_statuses
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.reading import RateLimit, ReplicaReading
from harness.audit.live.spool import bound_of, read_all
from harness.audit.removal_settings import RemovalSettings, read_settings
from harness.broker_files.copies.copies import find_copies
from harness.errors import HarnessError, UsageError
from harness.judge.finding import brokers_text, name_of
from harness.kafka_api import TopicPartition

READINGS: Final = 3
_SIGN: Final = 0x7FFFFFFF


@dataclass
class Comparison:
    """``differences``: those that no cleaner may cause. ``doubts``: why more may differ. Each is a sentence."""

    differences: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


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
    readings = {(broker, place): ReplicaReading(place, Span(log.log_start), bound) for broker, log in logs.items()}

    def write(broker: int, _reading: ReplicaReading, _base_offset: int, batches: memoryview, _end: int) -> None:
        logs[broker].read(BytesIO(batches), f"Fetch answer of {name_of(place)}")

    read_all(cluster, readings, write, limit)
    read: list[KeyReplica] = []
    for (broker, _), reading in readings.items():
        if reading.failure is None and (state := reading.state) is not None:
            offsets = state.high_watermark, state.last_stable_offset
            read.append(KeyReplica(broker, logs[broker], *offsets, reading.is_complete))
        else:
            unread[broker] = reading.failure or "its broker did not report its state"
    producers = {p for r in read for p in (*r.log.opened, *(k.producer_id for k in r.log.records)) if p is not None}
    described = ask_coordinators(cluster, producers).by_producer
    read.sort(key=lambda replica: replica.broker)
    return KeyPartition(
        place,
        tuple(read),
        compare(read, unread),
        read_settings(cluster.settings.get(place[0])),
        assigned.leader,
        ids={producer: description.transactional_id for producer, description in described.items()},
        now_ms=cluster.client.clock.time_ms(),
    )


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
        replicas.sort(key=lambda replica: replica.broker)
        partitions.append(KeyPartition(place, tuple(replicas), compare(replicas, unread), settings))
    return partitions, copies.notes


def compare(replicas: Sequence[KeyReplica], unread: Mapping[int, str]) -> Comparison:
    """Compare replicas up to the bound: the smaller of the highest high watermark and the shortest log's end.

    A replica that has a leader epoch beyond the first offset of a later one ends there: that tail was never replicated,
    unless both logs continue later (`batch_outcomes.unreplicated_tails`). Offsets before the highest log start offset
    do not count. ``unread``: why replicas were not read, by broker.
    """
    not_read = [f"the replica of broker {broker} was not read: {why}" for broker, why in sorted(unread.items())]
    if not replicas:
        return Comparison(doubts=["no replica was read", *not_read])
    # A leader whose epoch begins at the end of its log wrote nothing.
    spans = [
        (r.log.newest_epoch, epoch, *span)
        for r in replicas
        for epoch, span in r.log.epochs.items()
        if span[0] < r.log.end
    ]
    tails = [
        first
        for newest, newer, first, _ in spans
        for own_newest, epoch, _, last in spans
        if epoch < newer and first <= last and (own_newest < newer or own_newest > newest)
    ]
    bound = min([max(r.high_watermark for r in replicas), *(r.log.end for r in replicas), *tails])
    start = max(replica.log.log_start for replica in replicas)
    result = Comparison()
    if len(replicas) == 1:
        result.doubts.append(f"only the replica of broker {replicas[0].broker} was read")
    _compare_outcomes(replicas, bound, result)
    for replica in replicas:
        if replica.log.has_old_format:
            result.doubts.append(f"records of broker {replica.broker} from before Kafka 0.11 were not read")
        if replica.is_complete is False:
            result.doubts.append(f"broker {replica.broker} was not read to its end: its high watermark stayed behind")
        _compare_open(replica, replicas, bound, result)
    newest = {replica.broker: replica.newest(bound) for replica in replicas}
    last = max((record for record in newest.values() if record is not None), key=lambda r: r.offset, default=None)
    if last is not None and last.offset >= start:
        _compare_newest(replicas, newest, last, bound, result)
    result.doubts += not_read
    return result


def _compare_outcomes(replicas: Sequence[KeyReplica], bound: int, result: Comparison) -> None:
    stored: dict[int, list[tuple[KeyReplica, KeyRecord]]] = defaultdict(list)
    for replica in replicas:
        for record in replica.log.records:
            if record.offset < bound:
                stored[record.offset].append((replica, record))
    for offset, copies in sorted(stored.items()):
        brokers: dict[str, list[int]] = defaultdict(list)
        for replica, record in copies:
            brokers[record.outcome].append(replica.broker)
        if len({record.leader_epoch for _, record in copies}) > 1:
            result.doubts.append(f"offset {offset}: replicas have records of different leader epochs")
        elif len(brokers) > 1:
            last = max((record.ended_at for _, record in copies if record.ended_at is not None), default=offset)
            text = " and ".join(f"{outcome} on {brokers_text(on)}" for outcome, on in sorted(brokers.items()))
            if last < bound:
                result.differences.append(f"offset {offset}: {text}")
            else:
                result.doubts.append(f"offset {offset}: {text}, and the marker at {last} is beyond offset {bound}")


def _compare_open(replica: KeyReplica, replicas: Sequence[KeyReplica], bound: int, result: Comparison) -> None:
    """Compare the first open transaction, if it hides records of the key, with replicas that are past it."""
    log = replica.log
    producer, first = min(log.opened.items(), key=lambda item: item[1], default=(None, bound))
    past = [other for other in replicas if first < other.last_stable]
    if first >= bound or not past or not log.records or log.records[-1].offset < first:
        return
    text = (
        f"broker {replica.broker} still has the transaction of producer {producer} open from offset {first} on, and"
        f" shows read_committed consumers nothing from there on; it ended on {brokers_text(b.broker for b in past)}"
    )
    # Else the marker may be beyond the end of this log.
    ends = [(other.log.end if other.is_complete is None else other.high_watermark, other) for other in past]
    if any(end <= bound and other.log.log_start <= first for end, other in ends):
        result.differences.append(text)
    else:
        result.doubts.append(f"{text}, maybe beyond offset {bound}, or they begin after it")


def _compare_newest(
    replicas: Sequence[KeyReplica],
    newest: Mapping[int, KeyRecord | None],
    last: KeyRecord,
    bound: int,
    result: Comparison,
) -> None:
    """Compare the newest committed record before the bound, ``last``, with replicas that do not have it."""
    having = [broker for broker, record in newest.items() if record is not None and record.offset == last.offset]
    others: dict[tuple[str, str], list[int]] = defaultdict(list)
    # A replica whose log ends before a newer record may have copied a log that was cleaned because of that record.
    has_newer = any(r.offset >= bound and r.outcome != ABORTED for replica in replicas for r in replica.log.records)
    for replica in replicas:
        log, mine = replica.log, newest[replica.broker]
        is_here = any(record.offset == last.offset for record in log.records)
        if is_here or (mine is None and last.value is None):
            continue
        is_whole = log.whole_from <= bound if replica.is_complete is None else replica.is_complete
        doubt = ""
        if has_newer:
            doubt = f"newer records of the key are beyond offset {bound}, to which all replicas were read"
        elif mine is None and not is_whole:
            doubt = f"that log was cleaned beyond offset {bound}, to which all replicas were read"
        others[state_text(mine), doubt].append(replica.broker)
    for (state, doubt), brokers in others.items():
        text = (
            f"{brokers_text(brokers)}: {state}, and nothing at offset {last.offset}; {brokers_text(having)}:"
            f" {state_text(last)}"
        )
        (result.doubts if doubt else result.differences).append(f"{text}; {doubt}" if doubt else text)


def state_text(record: KeyRecord | None) -> str:
    """Return a phrase for what a replica serves."""
    if record is None:
        return "no record"
    return f"{'a delete' if record.value is None else 'the value'} of offset {record.offset}"
