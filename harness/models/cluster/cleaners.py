"""Each broker's cleaner: when it checks replicas that have changed, when a pass is due, and the settings of a pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.models.cluster.settings import NEVER_MS
from harness.models.log.batch import size_bytes
from harness.models.log.cleaner import UNBOUNDED, Cleaning, cleanable_segments, first_dirty, stable_segments
from harness.models.walk import systems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.models.cluster.broker import Broker
    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition
    from harness.models.log.replica import ModelSegment, Replica
    from harness.models.walk.systems import BrokerSystem

AT_REST: Final = 1.0
"""A ``min.cleanable.dirty.ratio`` that no log exceeds: it also stops compaction that needs no dirty records."""


@dataclass(frozen=True)
class Compactor:
    """The compaction by a kind of broker.

    ``system``: its passes. ``is_due``: whether a pass begins now (replica, cleaning, topic's numbers, time in ms);
    ``due_later_ms``: when time alone may make a pass due (replica, topic, time).
    """

    system: BrokerSystem
    is_due: Callable[[Replica, Cleaning, Mapping[str, float], int], bool]
    due_later_ms: Callable[[Replica, Mapping[str, float], int], float | None]


def is_due(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Return whether a pass begins now (``LogCleanerManager.grabFilthiestCompactedLog``).

    The dirty bytes are more than ``min.cleanable.dirty.ratio`` of the cleanable bytes, or have been dirty for longer
    than ``max.compaction.lag.ms``.
    """
    cleanable = replica.segments[: cleanable_segments(replica, cleaning, now_ms)]
    dirty = _dirty_segments(replica, cleanable)
    if not dirty:
        return False
    dirty_bytes, all_bytes = (sum(size_bytes(segment.batches) for segment in some) for some in (dirty, cleanable))
    is_overdue = now_ms - topic["max.compaction.lag.ms"] > _dirty_since_ms(dirty)
    return is_overdue or dirty_bytes / all_bytes > topic["min.cleanable.dirty.ratio"]


def due_later_ms(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when time alone may make a pass due, at the end of a compaction lag; None if it never does."""
    dirty = _dirty_segments(replica, replica.segments[:-1])
    if not dirty:
        return None
    youngest_ms = max(batch.max_timestamp_ms for batch in dirty[0].batches)
    moments = (
        youngest_ms + topic["min.compaction.lag.ms"] + 1,
        _dirty_since_ms(dirty) + topic["max.compaction.lag.ms"] + 1,
    )
    return min((moment for moment in moments if now_ms < moment < NEVER_MS), default=None)


def _dirty_segments(replica: Replica, segments: Iterable[ModelSegment]) -> list[ModelSegment]:
    """Return the segments with batches that were written since the last pass."""
    start = first_dirty(replica)
    return [segment for segment in segments if segment.base_offset >= start and segment.batches]


def _dirty_since_ms(dirty: Iterable[ModelSegment]) -> int:
    return min(segment.batches[0].max_timestamp_ms for segment in dirty)


def _is_due_in_redpanda(replica: Replica, cleaning: Cleaning, topic: Mapping[str, float], now_ms: int) -> bool:
    """Return whether a segment is closed: every check begins a pass (``log_compaction_interval_ms``)."""
    return topic["min.cleanable.dirty.ratio"] < AT_REST and stable_segments(replica, cleaning, now_ms) > 0


def _due_later_in_redpanda(replica: Replica, topic: Mapping[str, float], now_ms: int) -> float | None:
    """Return when the next segment will have been clean for the retention."""
    since_ms = [segment.clean_since_ms for segment in replica.segments if segment.clean_since_ms is not None]
    moments = (at_ms + topic["delete.retention.ms"] for at_ms in since_ms)
    return min((moment for moment in moments if moment > now_ms), default=None)


KAFKA: Final = Compactor(systems.KAFKA, is_due, due_later_ms)
REDPANDA: Final = Compactor(systems.REDPANDA, _is_due_in_redpanda, _due_later_in_redpanda)


@dataclass(frozen=True)
class Cleaners:
    """Compaction by brokers, each of its replicas, which it checks once its backoff is over."""

    _cluster: SimCluster

    def begin(self, partition: SimPartition) -> None:
        """Do nothing: a cleaner checks a partition when it changes."""

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Schedule a check of a replica that has changed."""
        self._look_later(partition, broker)

    def wake(self) -> None:
        """Schedule a check of every replica."""
        for broker in self._cluster.brokers:
            self._look_at_all(broker)

    def crash(self, broker: int) -> None:
        """Drop the schedule of a broker's cleaner, and check all its replicas once it runs again."""
        self._cluster.brokers[broker].look_at_s = math.inf
        self._look_at_all(broker)

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return the broker's own replica."""
        return partition.replica(broker)

    def _look_at_all(self, broker: int) -> None:
        for partition in self._cluster.partitions_of(broker):
            self._look_later(partition, broker)

    def _look_later(self, partition: SimPartition, number: int, delay_s: float = 0.0) -> None:
        """Schedule a check of a replica at the cleaner's next time after a delay."""
        broker, clock = self._cluster.brokers[number], self._cluster.clock
        broker.changed[partition] = None
        at_s = broker.next_look_s(clock.now_s() + delay_s)
        if broker.is_active and at_s < broker.look_at_s:
            broker.look_at_s = at_s
            clock.after(at_s - clock.now_s(), partial(self._look, broker, at_s))

    def _look(self, broker: Broker, at_s: float) -> None:
        """Clean the due replicas on a broker, and schedule checks of the replicas that time alone may make due."""
        if broker.look_at_s != at_s:
            return
        broker.look_at_s = math.inf
        changed, broker.changed = list(broker.changed), {}
        for partition in changed:
            if not partition.is_deleted and broker.number in partition.replication.replicas:
                self._check(broker, partition)

    def _check(self, broker: Broker, partition: SimPartition) -> None:
        number, compactor = broker.number, self._cluster.rules.compactor
        now_ms = self._cluster.clock.time_ms() + broker.skew_ms
        replica, topic = partition.replica(number), self._cluster.topic(partition.topic)
        cleaning = Cleaning(
            delete_retention_ms=int(topic["delete.retention.ms"]),
            producer_expiration_ms=int(broker.number_of("producer.id.expiration.ms")),
            min_compaction_lag_ms=int(topic["min.compaction.lag.ms"]),
            last_of_pass_stays=self._cluster.rules.version.last_of_pass_stays,
        )
        if compactor.is_due(replica, cleaning, topic, now_ms):
            bounds = UNBOUNDED if partition.protocol is None else partition.protocol.bounds(number)
            if compactor.system.clean(replica, cleaning, now_ms, bounds):
                partition.touch(number)
            self._cluster.coordinated.notice(partition, number)
        due_ms = compactor.due_later_ms(replica, topic, now_ms)
        if due_ms is not None:
            self._look_later(partition, number, (due_ms - now_ms) / 1000)
