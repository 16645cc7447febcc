"""Replicas that are exposed to anomalies: by the retention those that are down or being added, and frozen replicas.

The window is ``min.compaction.lag.ms`` + ``delete.retention.ms``: no cleaner removes a tombstone or a marker earlier
than that after its write. A replica that was down for longer may find on its return that tombstones and markers are
gone which it never fetched. In practice a removal happens later: the segment has to roll first (``segment.ms``), and
enough of the log has to be dirty (``min.cleanable.dirty.ratio``). A replica that is being added is exposed whatever the
retention.

A frozen replica is one that `prefilter` suspects, or one with a transaction that is open for longer than its timeout:
its coordinator should have aborted the transaction (KIP-98), so nothing will end it. Where no coordinator describes the
transaction, its timeout is assumed to be the longest that brokers allow by default.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from harness.audit.live import lags as copy_lags
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.prefilter import Prefiltered, prefilter
from harness.audit.removal_settings import RemovalSettings, read_settings
from harness.host.clock import duration_text, time_text
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.transactions import OpenTransaction

DEFAULT_MAX_TIMEOUT_MS = 900_000
"""Default of ``transaction.max.timeout.ms`` (`TransactionStateManagerConfig`)."""
GRACE_MS = 60_000
"""For a coordinator's next check (10 s), for its markers to be written, and for differences between clocks."""
FROM_THE_FIRST_MINUTE = (
    "exposed from the first minute, whatever the retention: where leadership moves before it has copied all, to a"
    " replica that has already removed a tombstone or marker, it never gets that one; leave leadership where it is"
    " until the replica is in the ISR, and audit the partition then"
)
"""Seen on Kafka 3.9.2 and 4.4.0 while every broker was up."""
ON_ITS_OLD_LOG = (
    "if the broker still has a log of this partition from an earlier assignment, it continues from that log when it"
    " starts, and never gets the removals since: delete the partition's folder before it starts"
)
"""Seen on Kafka 3.9.2 and 4.4.0: a broker that starts deletes only logs that are not assigned to it
(``LogManager.isStrayReplica``)."""


class ExposureKind(StrEnum):
    """The reason why a replica is exposed."""

    AWAY = "away"
    ADDED = "being added"
    FROZEN = "frozen"


class Level(IntEnum):
    """Severity; a topic has the worst level of its replicas."""

    OK = 0
    AT_RISK = 1
    TOO_LATE = 2

    @property
    def label(self) -> str:
        """The printed form."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class ReplicaExposure:
    """One replica that is down, being added or frozen, and the consequences.

    ``since_ms``: the time of the first record that the replica misses, or that stops it, by the broker's clock or else
    the producers' clocks. ``left_s``: the remaining duration of its copy. ``at_stake``: the first possible removal
    among its missing records.
    """

    kind: ExposureKind
    broker: int
    topic: str
    partition: int
    level: Level
    sentence: str
    since_ms: int | None = None
    by_brokers_clock: bool = False
    left_s: float | None = None
    at_stake: copy_lags.NextRemoval | None = None


@dataclass(frozen=True)
class TopicExposure:
    """A topic; if it is not compacted, it loses no tombstones or markers, and only its frozen replicas are listed."""

    topic: str
    level: Level
    settings: RemovalSettings
    replicas: tuple[ReplicaExposure, ...]
    sentence: str


@dataclass(frozen=True)
class Exposure:
    """Every topic, and notes on missing answers, each in a sentence."""

    topics: tuple[TopicExposure, ...]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        """The worst level of all topics."""
        return max((topic.level for topic in self.topics), default=Level.OK)


def exposure(cluster: AuditedCluster, answers: Prefiltered | None = None) -> Exposure:
    """Find the replicas of a cluster that are exposed now. Raises `UsageError` where this user may not read a topic.

    ``answers``: of the brokers, if they were asked before.
    """
    answers = answers or prefilter(cluster)
    frozen = list(frozen_replicas(cluster, answers))
    copies, notes = copy_lags.measure_copies(cluster)
    adding = {(copy.broker, copy.partition) for copy in copies}
    now_ms = cluster.client.clock.time_ms()
    topics = []
    for topic in cluster.state.topics:
        values = cluster.settings.get(topic)
        settings = read_settings(values)
        replicas = [replica for replica in frozen if replica.topic == topic]
        facts = [f"{_count_text(replicas)} frozen"] if replicas else []
        if values is not None and "compact" not in values.get("cleanup.policy", ""):
            # A topic that is not compacted loses nothing through replicas that are behind, but it can be frozen.
            facts.append("not compacted")
        else:
            lags = copy_lags.find_lags(cluster, topic, answers.statuses, adding)
            behind = [judge_lag(lag, settings, now_ms) for lag in lags]
            behind += [judge_copy(copy, settings) for copy in copies if copy.partition[0] == topic]
            count = f"{_count_text(behind)} out of the ISR or being added" if behind else "every replica is in the ISR"
            facts += [count, _retention_text(settings.window_ms)]
            replicas += behind
        level = max((replica.level for replica in replicas), default=Level.OK)
        topics.append(TopicExposure(topic, level, settings, tuple(replicas), f"{topic}: {'; '.join(facts)}"))
    return Exposure(tuple(topics), (*cluster.notes, *notes, *answers.coordinator_answers.gaps, *answers.behind))


def judge_lag(lag: copy_lags.Lag, settings: RemovalSettings, now_ms: int) -> ReplicaExposure:
    """Describe the exposure of a replica of a compacted topic that is behind."""
    name, window_ms, first = name_of(lag.partition), settings.window_ms, next(iter(lag.missing or ()), None)
    since_ms = first.max_timestamp_ms if first is not None and first.max_timestamp_ms >= 0 else None
    # Else a producer set the timestamp, and producers' clocks may be wrong.
    by_brokers_clock = first is not None and first.timestamp_type == "append"
    at_stake = None if window_ms is None else copy_lags.next_removal(lag.missing or (), window_ms)
    level, facts = Level.AT_RISK, f"broker {lag.broker} is out of the ISR of {name}"
    if lag.why_unseen is not None:
        facts = f"broker {lag.broker}'s replica of {name} was not seen ({lag.why_unseen}): since when is unknown"
    elif lag.missing is None:
        facts += ", and its missing records could not be read from a leader"
    elif not lag.missing:
        level, facts = Level.OK, f"{facts}, and misses no record of its leader"
    elif since_ms is None:
        facts += ", and its missing records have no timestamp"
    else:
        clock = "the broker's clock" if by_brokers_clock else "producers' clocks"
        behind_ms = max(now_ms - since_ms, 0)
        facts += f" and misses the records since {_ago(since_ms, behind_ms, clock)}"
        if window_ms is not None and behind_ms >= window_ms:
            level = Level.TOO_LATE
    if at_stake is not None:
        time = time_text(at_stake.removable_at_ms)
        facts += f"; the {at_stake.kind} at offset {at_stake.offset} may be removed from {time} on"
    sentence = f"{facts}; {_advice(level, window_ms)}" if level else facts
    place = ExposureKind.AWAY, lag.broker, *lag.partition
    return ReplicaExposure(*place, level, sentence, since_ms, by_brokers_clock, at_stake=at_stake)


def judge_copy(copy: copy_lags.CopyProgress, settings: RemovalSettings) -> ReplicaExposure:
    """Describe the exposure of a replica of a compacted topic that is being added.

    The longer its first copy takes, the more records the replica can have read before it reads their deletion. And the
    replica is at risk even where the copy takes no time, as its leader may change.
    """
    window_ms, remaining_s = settings.window_ms, None
    level, advice = Level.AT_RISK, _retention_text(window_ms)
    facts = f"broker {copy.broker} is being added as a replica of {name_of(copy.partition)}"
    if not copy.is_measured:
        facts += f", with unknown progress; {ON_ITS_OLD_LOG}"
    elif copy.pace_s <= 0:
        facts += f": {copy.done} of {copy.total} {copy.unit}, and it did not grow while it was observed"
        advice = _advice(level, window_ms)
    else:
        took_s, remaining_s = copy.done / copy.pace_s, max(copy.total - copy.done, 0) / copy.pace_s
        durations = f"about {duration_text(took_s)} so far and {duration_text(remaining_s)} to go"
        facts += f": {copy.done} of {copy.total} {copy.unit}, {durations}"
        if window_ms is not None and took_s * 1000 >= window_ms:
            level = Level.TOO_LATE
        if window_ms is None or (took_s + remaining_s) * 1000 >= window_ms:
            advice = _advice(level, window_ms)
    sentence = f"{facts}; {FROM_THE_FIRST_MINUTE}; {advice}"
    return ReplicaExposure(ExposureKind.ADDED, copy.broker, *copy.partition, level, sentence, left_s=remaining_s)


def frozen_replicas(cluster: AuditedCluster, prefiltered: Prefiltered) -> Iterator[ReplicaExposure]:
    """Describe the replicas that are frozen by their last status, one entry each, by partition and broker."""
    by_offset = sorted(prefiltered.suspicions, key=lambda suspicion: -suspicion.offset)
    suspicions = {(s.broker, (s.topic, s.partition)): s.explanation for s in by_offset}
    for broker, tp, status in prefiltered.statuses.in_order:
        transaction = min(status.open or (), key=lambda opened: opened.first_offset, default=None)
        level, since_ms, by_coordinator = Level.TOO_LATE, None, True
        if (broker, tp) in suspicions:
            facts = suspicions[broker, tp]
        elif transaction is not None:
            since_ms, timeout_ms, by_coordinator = _beginning(cluster, prefiltered, broker, tp, transaction)
            open_ms = cluster.client.clock.time_ms() - (since_ms or 0)
            if since_ms is None or open_ms <= timeout_ms + GRACE_MS:
                continue
            level = Level.AT_RISK
            ago = _ago(since_ms, open_ms, "its coordinator's clock" if by_coordinator else "producers' clocks")
            facts = (
                f"broker {broker} still has the transaction of producer {transaction.producer_id} open in {name_of(tp)}"
                f" since {ago}, and a transaction is aborted after {duration_text(timeout_ms / 1000)}"
            )
        else:
            continue
        sentence = (
            f"{facts}; read_committed consumers of broker {broker} get nothing from offset {status.last_stable_offset}"
            f" on (high watermark {status.high_watermark}): `harness audit live` reads the records behind it"
        )
        yield ReplicaExposure(ExposureKind.FROZEN, broker, *tp, level, sentence, since_ms, by_coordinator)


def _beginning(
    cluster: AuditedCluster, prefiltered: Prefiltered, broker: int, tp: TopicPartition, transaction: OpenTransaction
) -> tuple[int | None, int, bool]:
    """Return the time of a transaction's begin, its timeout, and whether its coordinator reported both."""
    described = prefiltered.coordinator_answers.by_producer.get(transaction.producer_id)
    if described is not None and described.start_time_ms >= 0 and tp in described.partitions:
        return described.start_time_ms, described.timeout_ms, True
    batches = copy_lags.read_batches(cluster, broker, tp, transaction.first_offset, max_bytes=1)
    written_ms = batches[0].max_timestamp_ms if batches else -1
    return (written_ms if written_ms >= 0 else None), DEFAULT_MAX_TIMEOUT_MS, False


def _count_text(replicas: Sequence[ReplicaExposure]) -> str:
    return f"{len(replicas)} replicas are" if len(replicas) > 1 else "1 replica is"


def _advice(level: Level, window_ms: int | None) -> str:
    # The settings were seen to prevent every anomaly on Kafka 4.4.0 (README).
    advice = (
        ", so some that it never fetched may be gone, and records that they deleted or aborted may come back with the"
        " replica: audit it, or rebuild it (reassign it away and back)"
        if level == Level.TOO_LATE
        else ": until the ISR is full, no removal begins with min.cleanable.dirty.ratio=1 and max.compaction.lag.ms at"
        " its maximum"
    )
    return f"{_retention_text(window_ms)}{advice}"


def _retention_text(window_ms: int | None) -> str:
    if window_ms is None:
        return "the retention of tombstones and markers is unknown"
    return f"tombstones and markers stay for at least {duration_text(window_ms / 1000)}"


def _ago(time_ms: int, passed_ms: float, clock: str) -> str:
    return f"{time_text(time_ms)} ({duration_text(passed_ms / 1000)} ago, by {clock})"
