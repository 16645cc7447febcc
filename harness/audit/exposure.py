"""What a cluster is exposed to: replicas that are away or being added, against the retention, and frozen ones.

The window is ``min.compaction.lag.ms`` + ``delete.retention.ms``: no cleaner removes a tombstone or a marker sooner
after it was written. A replica that lacks nothing older than that can still be given everything; one that has been away
for longer may come back to find tombstones and markers gone that it never saw. The real time to a removal is longer, by
the time until the segment rolls (``segment.ms``) and until enough of the log is dirty (``min.cleanable.dirty.ratio``).

A replica that is being added is exposed whatever the retention, and one whose last stable offset does not move has
lost its race already.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from harness.audit.frozen import find_frozen
from harness.audit.lags import Lag, find_lags
from harness.audit.line import quick_line
from harness.audit.prefilter import prefilter
from harness.audit.reassignments import SAMPLE_S, Copy, find_copies
from harness.audit.stake import AtStake, next_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.audit.cluster import Cluster, Topic
    from harness.audit.frozen import Frozen
    from harness.audit.line import Line
    from harness.audit.prefilter import Prefiltered
    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

COMPACT = "compact"
UNITS_S = {"days": 86_400, "h": 3_600, "min": 60}
WHAT_HELPS = (
    "until the ISR is full, no removal begins with min.cleanable.dirty.ratio=1 and max.compaction.lag.ms at its maximum"
)
"""Seen to prevent every anomaly on Kafka 4.4.0 (README)."""


FROM_THE_FIRST_MINUTE = (
    "exposed from the first minute, whatever the retention: where leadership moves before it has copied all, to a"
    " replica that has already removed a tombstone or marker, it never gets that one; leave leadership where it is"
    " until the replica is in the ISR, and audit the partition then"
)
"""Seen on Kafka 3.9.2 and 4.4.0, with nobody away."""
HELD_BACK = "read_committed consumers of broker {broker} get nothing from offset {offset} on (high watermark {mark})"


class Kind(StrEnum):
    """What is wrong with a replica."""

    AWAY = "away"
    ADDED = "being added"
    FROZEN = "frozen"


class Level(IntEnum):
    """How bad it is; the worst one is a topic's."""

    OK = 0
    AT_RISK = 1
    TOO_LATE = 2

    @property
    def words(self) -> str:
        """As it is printed."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Settings:
    """What decides when tombstones and markers go; milliseconds, and a ratio from 0 to 1. None: not told."""

    delete_retention_ms: int | None
    min_compaction_lag_ms: int | None
    segment_ms: int | None
    min_cleanable_dirty_ratio: float | None

    @property
    def window_ms(self) -> int | None:
        """How long a tombstone or marker stays at least; None where the retention is not told."""
        if self.delete_retention_ms is None:
            return None
        return (self.min_compaction_lag_ms or 0) + self.delete_retention_ms


@dataclass(frozen=True)
class Exposed:
    """One replica that is away, being added or frozen, and what that means.

    ``since_ms``: when the first record that it lacks, or that holds it, was written, by the broker's clock or else the
    producers'.
    ``left_s``: how long its copy still takes. ``at_stake``: what goes first of what it lacks.
    """

    kind: Kind
    broker: int
    topic: str
    partition: int
    level: Level
    since_ms: int | None
    by_brokers_clock: bool
    left_s: float | None
    at_stake: AtStake | None
    sentence: str


@dataclass(frozen=True)
class TopicExposure:
    """A topic; one that is not compacted loses no tombstones or markers, and its replicas are left out."""

    topic: str
    level: Level
    settings: Settings
    replicas: tuple[Exposed, ...]
    sentence: str


@dataclass(frozen=True)
class Exposure:
    """Every topic, and what could not be told, each in a sentence."""

    topics: tuple[TopicExposure, ...]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        """The worst of all topics."""
        return max((topic.level for topic in self.topics), default=Level.OK)


def exposure(
    cluster: Cluster,
    clock: Clock,
    *,
    prefiltered: Prefiltered | None = None,
    sample_s: float = SAMPLE_S,
    dial: Callable[[Address, Clock], Line] = quick_line,
) -> Exposure:
    """Ask the cluster what it is exposed to now.

    ``prefiltered``: what brokers said already, if they were asked. ``sample_s``: over how long the pace of
    reassignments is measured, if there are any. Raises `UsageError` where this user may not read a topic.
    """
    seen = prefiltered or prefilter(cluster, clock, dial=dial)
    frozen = find_frozen(cluster, seen, clock, dial)
    copies, notes = find_copies(cluster, clock, dial, sample_s)
    lags = find_lags(cluster, seen.looks, {(copy.broker, copy.partition) for copy in copies}, clock, dial)
    now_ms = clock.time_ms()
    topics = []
    for topic in cluster.topics.values():
        settings = read_settings(topic.settings)
        stuck = [judge_frozen(one, now_ms) for one in frozen if one.partition[0] == topic.name]
        away = [judge_lag(lag, settings, now_ms) for lag in lags if lag.partition[0] == topic.name]
        added = [judge_copy(copy, settings) for copy in copies if copy.partition[0] == topic.name]
        topics.append(_topic(topic, settings, stuck, [*away, *added]))
    return Exposure(tuple(topics), (*cluster.notes, *notes, *seen.words.untold, *seen.behind))


def read_settings(settings: Mapping[str, str] | None) -> Settings:
    """Return what decides about removal. Redpanda leaves out what it does not know."""
    told = settings or {}

    def whole(name: str) -> int | None:
        return int(told[name]) if told.get(name) else None

    ratio = told.get("min.cleanable.dirty.ratio")
    return Settings(
        whole("delete.retention.ms"),
        whole("min.compaction.lag.ms"),
        whole("segment.ms"),
        float(ratio) if ratio else None,
    )


def judge_lag(lag: Lag, settings: Settings, now_ms: int) -> Exposed:
    """Say what it means that a replica of a compacted topic is behind."""
    name, window_ms = _named(lag.partition), settings.window_ms
    at_stake = None if window_ms is None else next_removal(lag.lacks or (), window_ms)
    level, since_ms = Level.AT_RISK, lag.lacks_since_ms
    if lag.why_unseen is not None:
        told = f"broker {lag.broker}'s replica of {name} was not seen ({lag.why_unseen}): since when cannot be told"
    elif lag.lacks is None:
        told = f"broker {lag.broker} is out of the ISR of {name}, and no leader shows what it lacks"
    elif not lag.lacks:
        level = Level.OK
        told = f"broker {lag.broker} is out of the ISR of {name}, and lacks nothing that its leader shows"
    elif since_ms is None:
        told = f"broker {lag.broker} is out of the ISR of {name}, and what it lacks carries no time"
    else:
        clock = "the broker's clock" if lag.by_brokers_clock else "producers' clocks"
        away_ms = max(now_ms - since_ms, 0)
        told = (
            f"broker {lag.broker} is out of the ISR of {name} and lacks what was written since {_time(since_ms)}"
            f" ({_lasting(away_ms / 1000)} ago, by {clock})"
        )
        if window_ms is not None and away_ms >= window_ms:
            level = Level.TOO_LATE
    if at_stake is not None:
        told += f"; the {at_stake.kind} at offset {at_stake.offset} may go from {_time(at_stake.removable_at_ms)} on"
    sentence = f"{told}; {_advice(level, window_ms)}" if level else told
    by_broker = lag.by_brokers_clock
    return Exposed(Kind.AWAY, lag.broker, *lag.partition, level, since_ms, by_broker, None, at_stake, sentence)


def judge_copy(copy: Copy, settings: Settings) -> Exposed:
    """Say what it means that a replica of a compacted topic is being added.

    The longer its first copy takes, the more it can have read what is deleted before it has read the deletion; and it
    is at risk even where the copy takes no time, as its leader may change.
    """
    window_ms, took_s, left_s = settings.window_ms, copy.took_s, copy.left_s
    told = (
        f"broker {copy.broker} is being given a replica of {_named(copy.partition)}:"
        f" {copy.done} of {copy.total} {copy.unit}, "
    )
    advice = _stays(window_ms)
    level = Level.AT_RISK
    if took_s is None or left_s is None:
        told += "and it did not grow while it was looked at"
        advice = _advice(level, window_ms)
    else:
        told += f"about {_lasting(took_s)} so far and {_lasting(left_s)} to go"
        if window_ms is not None and took_s * 1000 >= window_ms:
            level = Level.TOO_LATE
        if window_ms is None or (took_s + left_s) * 1000 >= window_ms:
            advice = _advice(level, window_ms)
    sentence = f"{told}; {FROM_THE_FIRST_MINUTE}; {advice}"
    return Exposed(Kind.ADDED, copy.broker, *copy.partition, level, None, False, left_s, None, sentence)


def judge_frozen(frozen: Frozen, now_ms: int) -> Exposed:
    """Say what it means that a replica's last stable offset does not move."""
    held = HELD_BACK.format(broker=frozen.broker, offset=frozen.last_stable_offset, mark=frozen.high_watermark)
    if frozen.suspicion is not None:
        level, told = Level.TOO_LATE, frozen.suspicion.explanation
    else:
        level, since_ms = Level.AT_RISK, frozen.since_ms or 0
        clock = "producers' clocks" if frozen.by_producers_clock else "its coordinator's clock"
        told = (
            f"broker {frozen.broker} holds the transaction of producer {frozen.producer_id} open in"
            f" {_named(frozen.partition)} since {_time(since_ms)} ({_lasting((now_ms - since_ms) / 1000)} ago, by"
            f" {clock}), and a transaction is aborted after {_lasting(frozen.timeout_ms / 1000)}"
        )
    sentence = f"{told}; {held}: `harness audit live` reads what is there"
    by_broker = not frozen.by_producers_clock
    return Exposed(
        Kind.FROZEN, frozen.broker, *frozen.partition, level, frozen.since_ms, by_broker, None, None, sentence
    )


def _topic(topic: Topic, settings: Settings, stuck: Sequence[Exposed], behind: Sequence[Exposed]) -> TopicExposure:
    """Sum up; a topic that is not compacted loses nothing by replicas that are behind, but it can be frozen."""
    is_compacted = topic.settings is None or COMPACT in topic.settings.get("cleanup.policy", "")
    replicas = (*stuck, *behind) if is_compacted else tuple(stuck)
    level = max((one.level for one in replicas), default=Level.OK)
    told = [f"{_counted(stuck)} frozen"] if stuck else []
    if not is_compacted:
        told.append("not compacted")
    else:
        told += [f"{_counted(behind)} away or being added" if behind else "every replica is in the ISR"]
        told += [_stays(settings.window_ms)]
    return TopicExposure(topic.name, level, settings, replicas, f"{topic.name}: {'; '.join(told)}")


def _counted(replicas: Sequence[Exposed]) -> str:
    return f"{len(replicas)} replicas are" if len(replicas) > 1 else "1 replica is"


def _advice(level: Level, window_ms: int | None) -> str:
    if level == Level.TOO_LATE:
        return (
            f"{_stays(window_ms)}, so some that it never saw may be gone, and what they deleted or decided may come"
            " back with it: audit it, or copy it anew (reassign it away and back)"
        )
    if level == Level.AT_RISK:
        return f"{_stays(window_ms)}: {WHAT_HELPS}"
    return _stays(window_ms)


def _stays(window_ms: int | None) -> str:
    if window_ms is None:
        return "how long tombstones and markers stay is not told"
    return f"tombstones and markers stay for at least {_lasting(window_ms / 1000)}"


def _named(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _lasting(seconds: float) -> str:
    for unit, unit_s in UNITS_S.items():
        if seconds >= unit_s * 2:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.1f} s"
