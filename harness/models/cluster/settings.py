"""The settings of brokers and topics that have an effect in the model, with Kafka's defaults.

Source of names, defaults and bounds: ``TopicConfig``, ``ServerConfigs``, ``CleanerConfig``, ``ReplicationConfigs``
and ``TransactionStateManagerConfig`` (Kafka 3.9 to 4.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.broker_files.segments.records import MAX_INT64
from harness.errors import UsageError, raised_as
from harness.schedules.timers import DAY_MS

NEVER_MS: Final = MAX_INT64

TOPIC: Final[Mapping[str, float]] = {
    "segment.ms": 7 * DAY_MS,
    "segment.bytes": 1 << 30,
    "delete.retention.ms": DAY_MS,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": NEVER_MS,
    "min.cleanable.dirty.ratio": 0.5,
}
BROKER: Final[Mapping[str, float]] = {
    "broker.session.timeout.ms": 9_000,
    "broker.heartbeat.interval.ms": 2_000,
    "replica.lag.time.max.ms": 30_000,
    "replica.fetch.backoff.ms": 1_000,
    "replica.fetch.wait.max.ms": 100,  # as this harness sets it on real brokers, too
    "log.cleaner.backoff.ms": 15_000,
    "producer.id.expiration.ms": DAY_MS,
    "leader.replication.throttled.rate": NEVER_MS,
    "follower.replication.throttled.rate": NEVER_MS,
}
OF_NO_EFFECT: Final = frozenset(
    {
        "cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
        "group.initial.rebalance.delay.ms", "file.delete.delay.ms", "log.cleaner.dedupe.buffer.size",
        "producer.id.expiration.check.interval.ms", "replica.fetch.max.bytes", "replication.quota.window.num",
        "replication.quota.window.size.seconds", "request.timeout.ms",
    }
)  # fmt: skip
"""Settings of real brokers in this harness without an effect here: every topic is compacted, every replica out of sync
is throttled, passes index all keys, producers expire before a pass, and quotas are exact."""


@dataclass
class Settings:
    """The settings of a topic or a broker, whose ``own`` settings override the ``common`` ones of all brokers.

    ``numbers``: every number, as set or by default. Raises `UsageError` for a name without a rule in the model, and for
    a value that is not a number. ``scope``: topic or broker.
    """

    scope: str
    common: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.change({})

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Change own settings; None removes a setting."""
        self.own = {name: value for name, value in {**self.own, **changes}.items() if value is not None}
        settings, defaults = {**self.common, **self.own}, {"topic": TOPIC, "broker": BROKER}[self.scope]
        unknown = [name for name in settings if name not in defaults and name not in OF_NO_EFFECT]
        if unknown:
            option, known = f"--set {self.scope}.{unknown[0]}", ", ".join(sorted(defaults))
            raise UsageError(f"{option}: simulated brokers know no such setting; they know {known}")
        with raised_as(UsageError, f"a {self.scope} setting of a simulated cluster is a number", ValueError):
            set_numbers = {name: float(value) for name, value in settings.items() if name in defaults}
        self.numbers = {**defaults, **set_numbers}


def raise_if_unknown(topic: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """Raise `UsageError` for the first setting of a topic or a broker that the model does not support."""
    for scope, settings in (("topic", topic), ("broker", broker)):
        Settings(scope, own=settings)
