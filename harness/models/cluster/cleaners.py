"""Each broker's cleaner, for its own replicas: it checks replicas that have changed, once its backoff is over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.models.cluster.cleaning import cleaning_of
from harness.models.log.cleaner import UNBOUNDED

if TYPE_CHECKING:
    from harness.models.cluster.broker import Broker
    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.partition import SimPartition
    from harness.models.log.replica import Replica


@dataclass(frozen=True)
class Cleaners:
    """Compaction by brokers, each of its own replicas."""

    _cluster: SimCluster

    def begin(self, partition: SimPartition) -> None:
        """Do nothing: a cleaner checks a partition when it changes."""

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Schedule a check of a replica that has changed."""
        self._look_later(partition, broker)

    def wake(self) -> None:
        """Schedule a check of every replica."""
        for broker in self._cluster.brokers:
            self.restart(broker)

    def crash(self, broker: int) -> None:
        """Drop the schedule of a broker's cleaner, and check all its replicas once it runs again."""
        self._cluster.brokers[broker].look_at_s = math.inf
        self.restart(broker)

    def restart(self, broker: int) -> None:
        """Schedule a check of all replicas of a broker."""
        for partition in self._cluster.partitions_of(broker):
            self._look_later(partition, broker)

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return the broker's own replica."""
        return partition.replica(broker)

    def _look_later(self, partition: SimPartition, broker: int, delay_s: float = 0.0) -> None:
        """Schedule a check of a replica at the cleaner's next time after a delay."""
        one = self._cluster.brokers[broker]
        one.changed[partition] = None
        at_s = one.next_look_s(self._cluster.clock.now_s() + delay_s)
        if one.is_active and at_s < one.look_at_s:
            one.look_at_s = at_s
            self._cluster.clock.after(at_s - self._cluster.clock.now_s(), partial(self._look, one, at_s))

    def _look(self, broker: Broker, at_s: float) -> None:
        """Clean the replicas that are due on a broker, and schedule checks of those that time alone may make due."""
        if broker.look_at_s != at_s:
            return
        broker.look_at_s = math.inf
        now_ms = self._cluster.clock.time_ms() + broker.skew_ms
        changed, broker.changed = list(broker.changed), {}
        compactor = self._cluster.rules.compactor
        for partition in changed:
            if partition.is_deleted or broker.number not in partition.replication.replicas:
                continue
            replica, topic = partition.replica(broker.number), self._cluster.topic(partition.topic)
            cleaning = cleaning_of(topic, broker.number_of("producer.id.expiration.ms"), self._cluster.rules.version)
            if compactor.is_due(replica, cleaning, topic, now_ms):
                bounds = UNBOUNDED if partition.protocol is None else partition.protocol.bounds(broker.number)
                if compactor.system.clean(replica, cleaning, now_ms, bounds):
                    partition.touch(broker.number)
                self._cluster.coordinated.notice(partition, broker.number)
            due_ms = compactor.due_later_ms(replica, topic, now_ms)
            if due_ms is not None:
                self._look_later(partition, broker.number, (due_ms - now_ms) / 1000)
