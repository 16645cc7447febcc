"""Topics as a guard sees them: exposed and covered topics.

An assigned replica that is out of the ISR may miss a tombstone or marker: its topic is exposed. A replica that is being
added is assigned, and out of the ISR until it has copied everything. A broker's metadata may be old: a broker that is
cut off keeps its last metadata. So several brokers are asked, and a replica counts as missing if any of them reports
it: that pauses too much rather than too little.

A guard covers the compacted topics that the user named, or all. Settings of a topic are read when the topic is new, and
again every `REFRESH_S`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.broker_files.copies.selection import is_compacted, is_named
from harness.protect.guard.settings import POLICY, window_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.host.clock import Clock
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState
    from harness.protect.guard.cluster import LiveCluster
    from harness.protect.guard.settings import Settings


Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one time: its topics, as far as this user may describe them.

    ``missing``: assigned replicas that are out of the ISR. ``adding``: the missing replicas that are being added.
    ``notes``: sentences on unanswered questions.
    """

    topics: frozenset[str]
    missing: frozenset[Replica]
    adding: frozenset[Replica] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def exposed(self) -> frozenset[str]:
        """The topics with a missing replica."""
        return frozenset(topic for (topic, _), _ in self.missing)


def missing_replicas(states: Mapping[TopicPartition, PartitionState]) -> set[Replica]:
    """Return the assigned replicas that are out of the ISR."""
    return {(tp, broker) for tp, state in states.items() for broker in state.replicas if broker not in state.isr}


def united(answers: Collection[Mapping[TopicPartition, PartitionState]]) -> ClusterView:
    """Return the reports of several brokers together."""
    topics = frozenset(topic for answer in answers for topic, _ in answer)
    return ClusterView(topics, frozenset().union(*map(missing_replicas, answers)))


@dataclass(frozen=True)
class SettingsRead:
    """Settings by topic. ``gone``: topics that do not exist. ``refused``: unread topics, with the reason."""

    settings: Mapping[str, Settings]
    gone: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


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
