"""Topics as a guard covers them, the two topic settings that pause compaction, and the equality of their values.

A guard covers the compacted topics that the user named, or all. Settings of a topic are read when the topic is new, and
again every `REFRESH_S`.

A cleaner chooses a log whose dirty ratio is *greater* than ``min.cleanable.dirty.ratio``, or that has a dirty record
older than ``max.compaction.lag.ms`` (`LogCleanerManager.grabFilthiestCompactedLog`, KIP-354). A ratio is never greater
than 1, and no record is older than the greatest lag: with both values even a log that is dirty from end to end waits.
Seen to prevent every anomaly on Kafka 4.4.0 (`docs/how-to/guard.md`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.broker_files.copies.selection import is_compacted, is_named
from harness.host.clock import Clock

if TYPE_CHECKING:
    from harness.kafka_api.configs import ConfigEntry
    from harness.protect.guard.cluster import ClusterView, LiveCluster

DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MAX_LAG_MS: Final = "max.compaction.lag.ms"
PAUSE: Final = {DIRTY_RATIO: "1", MAX_LAG_MS: str(2**63 - 1)}
"""The settings of a topic whose compaction is paused. The guard changes no other settings."""
POLICY: Final = "cleanup.policy"
RETENTION_MS, MIN_LAG_MS = "delete.retention.ms", "min.compaction.lag.ms"
READ: Final = (*PAUSE, POLICY, RETENTION_MS, MIN_LAG_MS)
"""The settings that the guard reads."""

TopicValues: TypeAlias = "Mapping[str, str | None]"
"""The explicit values of a topic's settings; None where the topic inherits the broker's value."""
Settings: TypeAlias = "Mapping[str, ConfigEntry]"


def is_same(value: str | None, other: str | None) -> bool:
    """Return whether two values are the same number: brokers answer ``1.0`` where ``1`` was set."""
    if value is None or other is None:
        return value is other
    try:
        return Decimal(value) == Decimal(other)
    except InvalidOperation:
        return value == other


def is_pause(name: str, setting: ConfigEntry) -> bool:
    """Return whether a topic has the explicit value of a pause. An inherited value may change at any time."""
    return is_same(setting.explicit, PAUSE[name])


def explicit_values(settings: Settings) -> dict[str, str | None]:
    """Return the topic's explicit values of the two settings."""
    return {name: settings[name].explicit for name in PAUSE}


def changes_text(values: TopicValues) -> str:
    """Return values for people."""
    return ", ".join(f"{name}={'(inherited)' if value is None else value}" for name, value in values.items())


def window_ms(settings: Settings) -> int:
    """Return the least time for which a tombstone or marker stays in the log."""
    return int(settings[MIN_LAG_MS].value) + int(settings[RETENTION_MS].value)


REFRESH_S: Final = 60.0
INTERVALS: Final = 3
FROZEN_S: Final = 4.0
"""A retention shorter than so many intervals and seconds may be over before compaction is paused.

A round may fail; and while the broker that leads the guard's topic is frozen, clients wait for its answers.
"""


@dataclass(frozen=True)
class CoveredTopics:
    """The covered topics with their settings. ``skipped``: named topics that are not covered, with the reason."""

    settings: Mapping[str, Settings]
    skipped: Mapping[str, str]
    short_retention: frozenset[str]


@dataclass
class TopicCoverage:
    """Follows the topics of a cluster. ``patterns``: () for every topic."""

    cluster: LiveCluster
    clock: Clock
    patterns: tuple[str, ...]
    interval_s: float
    _settings: dict[str, Settings] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _read_s: float | None = None

    def forget(self, topics: Collection[str]) -> None:
        """Have the settings of these topics read again."""
        for topic in topics:
            self._settings.pop(topic, None)

    def covered(self, view: ClusterView) -> CoveredTopics:
        """Return the topics that are covered now. Raises as `LiveCluster.settings` does."""
        named = {t for t in view.topics if not self.patterns or is_named(t, self.patterns)}
        is_old = self._read_s is None or self.clock.now_s() - self._read_s >= REFRESH_S
        unread = named if is_old else named - self._settings.keys() - self._refused.keys()
        if unread:
            read = self.cluster.settings(unread)
            if is_old:
                self._settings, self._refused, self._read_s = {}, {}, self.clock.now_s()
            self._settings |= read.settings
            self._refused |= read.refused
        settings = {t: s for t, s in self._settings.items() if t in named and is_compacted(t, s[POLICY].value)}
        least_ms = (INTERVALS * self.interval_s + FROZEN_S) * 1000
        return CoveredTopics(
            settings,
            {topic: why for topic, why in self._refused.items() if topic in named},
            frozenset(topic for topic, values in settings.items() if window_ms(values) < least_ms),
        )
