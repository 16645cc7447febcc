"""On which scale a run goes: retention, cleaning and failure detection together, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.suggest import known_name

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
HOUR_S = 3600.0


@dataclass(frozen=True)
class Timers:
    """Kafka properties in milliseconds, the harness's own bounds and periods in seconds.

    ``topic`` and ``broker`` are Kafka properties. ``window_s`` bounds the wait for what is critical to
    vanish; ``settle_s`` bounds every other wait on the cluster. ``filler_period_s`` is the time between two
    records of the plain filler in each topic: shorter than ``segment.ms``, so that segments roll.
    ``observe_period_s``: how often every replica is looked at. ``copy_bytes_per_s``: at which pace a
    replica copies a partition that it must not have finished while the window is open. ``clock_step_s``: by how much
    the wall clocks of all brokers are put forward, again and again, until what is critical has vanished; 0 for never.
    """

    name: str
    summary: str
    topic: Mapping[str, str]
    window_s: float
    settle_s: float
    filler_period_s: float
    observe_period_s: float
    copy_bytes_per_s: int
    broker: Mapping[str, str] = field(default_factory=dict)
    is_resumable: bool = False
    clock_step_s: int = 0


FAST = Timers(
    name="fast",
    summary="retention of 0.3 s: a run takes half a minute",
    topic={
        "cleanup.policy": "compact",
        "delete.retention.ms": "300",
        "segment.ms": "100",
        "max.compaction.lag.ms": "200",
        "min.cleanable.dirty.ratio": "0.0001",
    },
    broker={
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.backoff.ms": "100",
        "log.cleaner.backoff.ms": "60",
        "log.cleaner.dedupe.buffer.size": "1100000",
        "producer.id.expiration.ms": "700",
        "producer.id.expiration.check.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    },
    window_s=20.0, settle_s=30.0, filler_period_s=0.05, observe_period_s=0.15, copy_bytes_per_s=4096,
)  # fmt: skip

TEN_MINUTES = Timers(
    name="10m",
    summary="retention of a minute, Kafka's own failure detection and cleaner: up to ten minutes",
    topic={
        "cleanup.policy": "compact",
        "delete.retention.ms": str(MINUTE_MS),
        # The published reproducer pumps a gigabyte for each segment, and past the dirty ratio of 0.5, instead.
        "segment.ms": "10000",
        "min.cleanable.dirty.ratio": "0.01",
    },
    broker={
        "producer.id.expiration.ms": str(MINUTE_MS),
        "producer.id.expiration.check.interval.ms": "10000",
        "log.cleaner.dedupe.buffer.size": "1100000",
    },
    window_s=600.0, settle_s=180.0, filler_period_s=0.5, observe_period_s=1.0, copy_bytes_per_s=1024,
    is_resumable=True,
)  # fmt: skip

DEFAULT = Timers(
    name="default",
    summary="Kafka's own windows of 24 hours: about two days, on a rig that can be left alone",
    topic={
        "cleanup.policy": "compact",
        "delete.retention.ms": str(DAY_MS),
        # The two departures: at the defaults (seven days, 0.5) a quiet topic is not cleaned within the window.
        "segment.ms": str(HOUR_MS),
        "min.cleanable.dirty.ratio": "0.01",
    },
    broker={
        "producer.id.expiration.ms": str(DAY_MS),
        "log.cleaner.dedupe.buffer.size": "1100000",
        # A pace this slow is kept only over a long window of its own.
        "replication.quota.window.num": "61",
        "replication.quota.window.size.seconds": "10",
    },
    window_s=96 * HOUR_S, settle_s=600.0, filler_period_s=20.0, observe_period_s=15.0, copy_bytes_per_s=64,
    is_resumable=True,
)  # fmt: skip

DAYS = Timers(
    name="days",
    summary="Kafka's own windows of 24 hours, brokers' clocks put forward by days: some minutes (needs libfaketime)",
    # By default segments roll by the time of clients, whose clocks stay. Ballast is most of a log, and clean after the
    # first pass: at a ratio of 0.5, the default, no second pass would begin.
    topic={**DEFAULT.topic, "message.timestamp.type": "LogAppendTime"},
    broker={
        "producer.id.expiration.ms": str(DAY_MS),
        # Ten minutes by default, on a clock that is not put forward.
        "producer.id.expiration.check.interval.ms": "5000",
        "log.cleaner.dedupe.buffer.size": "1100000",
    },
    window_s=300.0, settle_s=180.0, filler_period_s=0.1, observe_period_s=0.3, copy_bytes_per_s=1024,
    # Longer than a day, and six steps are shorter than the seven days after which coordinators forget
    # (transactional.id.expiration.ms, offsets.retention.minutes).
    clock_step_s=25 * 3600,
)  # fmt: skip

STEP_S = 25.0
"""The time between two steps of the clocks: the cleaner looks for work every 15 s by default."""
MOST_STEPS = 6

TIMERS = {timers.name: timers for timers in (FAST, TEN_MINUTES, DAYS, DEFAULT)}

FREEZE = {"min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": str(2**63 - 1), "segment.ms": str(7 * DAY_MS)}
"""Settings under which no cleaner pass begins (the ratio is compared with a strict >), and no segment rolls."""


def find_timers(name: str) -> Timers:
    """Return the timers of that name. Raises `UsageError` with the nearest names."""
    return TIMERS[known_name("set of timers", name, TIMERS)]
