"""What a test is, as data: the payload's steps, who is absent meanwhile, what must vanish, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Anomaly(StrEnum):
    """The four ways in which replicas of a compacted partition come to disagree for ever."""

    TOMBSTONE_DIVERGENCE = "tombstone-divergence"
    ABORTED_TO_COMMITTED = "aborted-to-committed"
    COMMITTED_TO_ABORTED = "committed-to-aborted"
    STUCK_LSO = "stuck-lso"


class Action(StrEnum):
    """What a client does in one step."""

    PUT = "put"
    DELETE = "delete"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"


class Critical(StrEnum):
    """What must be removed from the replicas that stay before the absent one returns."""

    TOMBSTONE = "tombstone"
    MARKER = "marker"


class Phase(StrEnum):
    """The parts of a run, in order; every operation in the history names its phase."""

    BEFORE = "before"
    OUTAGE = "outage"
    LATE = "late"
    AFTER = "after"


@dataclass(frozen=True)
class Step:
    """One operation of one client process; ``key`` and ``value`` only where the action has them."""

    process: str
    action: Action
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One payload on one topic.

    ``before``: written while every replica follows. ``outage``: while ``absent_broker`` is away.
    ``late``: once what is critical is gone from the others, just before the absent one returns.
    ``critical`` names what the outage's steps write that must vanish: the tombstone written there, the
    marker of the transaction ended there. A process that begins a transaction somewhere is transactional.
    ``anomaly`` is None for a control, which has no replica on the absent broker and can show nothing.
    """

    name: str
    anomaly: Anomaly | None
    payload: str
    summary: str
    before: tuple[Step, ...]
    outage: tuple[Step, ...]
    late: tuple[Step, ...] = ()
    critical: tuple[Critical, ...] = (Critical.MARKER,)
    absent_broker: int = 2

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step, in order."""
        return (*self.before, *self.outage, *self.late)

    @property
    def transactional_processes(self) -> frozenset[str]:
        """The processes that begin a transaction in any step."""
        return frozenset(step.process for step in self.steps if step.action is Action.BEGIN)

    def replicas(self, brokers: tuple[int, ...]) -> tuple[int, ...]:
        """Replica list on these brokers, the absent one last, so that it does not lead; none for a control."""
        staying = tuple(b for b in brokers if b != self.absent_broker)
        return staying if self.anomaly is None else (*staying, self.absent_broker)


@dataclass(frozen=True)
class Timers:
    """Retention and failure detection on one scale; milliseconds in the properties, seconds in the bounds.

    ``topic`` and ``broker`` are Kafka properties. ``window_s`` bounds the wait for what is critical to
    vanish; ``settle_s`` bounds every other wait on the cluster. ``filler_period_s`` is the time between two
    records of the plain filler in each topic: well above ``segment.ms`` in number, so that segments roll.
    """

    name: str
    topic: dict[str, str]
    broker: dict[str, str]
    window_s: float
    settle_s: float
    filler_period_s: float


FAST = Timers(
    name="fast",
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
        "file.delete.delay.ms": "1000",
    },
    window_s=20.0,
    settle_s=30.0,
    filler_period_s=0.05,
)

FREEZE = {
    "min.cleanable.dirty.ratio": "1.0",
    "max.compaction.lag.ms": str(2**63 - 1),
    "segment.ms": str(7 * 24 * 60 * 60 * 1000),
}
"""Settings under which no cleaner pass begins (the ratio is compared with a strict >), and no segment rolls."""
