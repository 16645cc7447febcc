"""Cloud Topics on simulated brokers: decided batches move from the replicated log to one shared copy.

Source: Redpanda's post on compaction in Cloud Topics.

Each broker has the end of a partition in its local log (L0). The leader hands batches below the last stable offset
over to the object store and the metastore (L1), without markers and aborted batches; replicas then drop them. A reader
of any broker gets L1, and after it the L0 of that broker. Any broker compacts any partition's L1, and if two do so at
once the metastore accepts the first (`harness.models.cloud_topics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.models.cloud_topics.cloud import Cloud, Job
from harness.models.cloud_topics.compaction import Settings
from harness.models.cluster.partition import SimPartition
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import ModelSegment, Replica
from harness.models.log.systems import AT_REST

if TYPE_CHECKING:
    from harness.models.cluster.cluster import SimCluster

HAND_OVER_S: Final = 0.25
"""The time that decided batches may stay only in L0."""
SHORTEST_PASS_S, LONGEST_PASS_S = 0.005, 0.08
"""From reading metadata to the commit: long enough for passes of two brokers to overlap."""


@dataclass
class CloudStore:
    """L1 of partitions, and compactors on every broker: compaction of the one shared copy."""

    _cluster: SimCluster
    _cloud: Cloud = field(default_factory=Cloud)
    _by_name: dict[str, SimPartition] = field(default_factory=dict)
    _handing_over: set[str] = field(default_factory=set)
    _woken: set[int] = field(default_factory=set)

    def begin(self, partition: SimPartition) -> None:
        """Begin with a partition that was just created."""
        self._drop_deleted()
        self._by_name[partition.name] = partition
        self._cloud.create(partition.name, self._settings(partition))

    def served(self, partition: SimPartition, broker: int) -> Replica:
        """Return the log that a broker serves: L1, and after it the rest of the broker's L0."""
        local, log = partition.replica(broker), self._cloud.partitions[partition.name].log
        batches = [batch for piece in log.objects for batch in piece.batches]
        covered = batches[-1].last_offset + 1 if batches else 0
        if covered < log.end_offset:
            # A batch without records shows the log end offset to a reader. Kafka's cleaner leaves such a batch; the
            # answer of Cloud Topics there is unknown.
            batches.append(ModelBatch(covered, log.end_offset - 1, (), 0))
        later = [batch for batch in local.from_offset(log.end_offset) if batch.base_offset >= log.end_offset]
        aborted = [entry for entry in local.aborted if entry.last_offset >= log.end_offset]
        return replace(local.fork(), segments=[ModelSegment(0, [*batches, *later], aborted)], log_start=0)

    def notice(self, partition: SimPartition, broker: int) -> None:
        """Let the leader hand over decided batches, a little later."""
        if partition.name in self._handing_over or broker != partition.leader_id:
            return
        if self._is_ahead(partition) and not self._rests(partition.name):
            self._handing_over.add(partition.name)
            self._cluster.clock.after(HAND_OVER_S, partial(self._hand_over, partition))

    def wake(self) -> None:
        """Let every leader check for decided batches, and every broker's idle worker for a log to compact."""
        for partition in self._by_name.values():
            self.notice(partition, partition.replication.leader_id)
        for broker in self._cluster.brokers:
            self._wake(broker, 0.0)

    def crash(self, broker: int) -> None:
        """Drop the passes of a broker."""
        self._cloud.crash(broker)
        self._woken.discard(broker)

    def _is_ahead(self, partition: SimPartition) -> bool:
        end = self._cloud.partitions[partition.name].log.end_offset
        return partition.has_leader and partition.leader.last_stable_offset > end

    def _hand_over(self, partition: SimPartition) -> None:
        name, leader = partition.name, partition.leader_id
        self._handing_over.discard(name)
        if leader is None or not self._cluster.is_reachable(leader):
            return
        if self._rests(name) or not self._is_ahead(partition):
            return
        start, end = self._cloud.partitions[name].log.end_offset, partition.leader.last_stable_offset
        self._cloud.append(name, list(_decided(partition.leader, start, end)))
        partition.replication.delete_records(end)
        self._touch(partition)
        self.wake()

    def _drop_deleted(self) -> None:
        for name in [name for name, partition in self._by_name.items() if partition.is_deleted]:
            del self._by_name[name], self._cloud.partitions[name]
            for job in [job for job in self._cloud.jobs if job.name == name]:
                self._cloud.end(job)

    def _touch(self, partition: SimPartition) -> None:
        for broker in partition.assigned:
            partition.touch(broker)

    def _settings(self, partition: SimPartition) -> Settings:
        topic = self._cluster.topic(partition.topic)
        return Settings(
            delete_retention_ms=int(topic["delete.retention.ms"]),
            min_cleanable_dirty_ratio=topic["min.cleanable.dirty.ratio"],
            max_compaction_lag_ms=int(topic["max.compaction.lag.ms"]),
        )

    def _wake(self, broker: int, delay_s: float) -> None:
        state, now_s = self._cluster.brokers[broker], self._cluster.clock.now_s()
        if broker not in self._woken and self._cluster.is_reachable(broker):
            self._woken.add(broker)
            look_at_s = state.next_look_s(now_s + delay_s)
            self._cluster.clock.after(look_at_s - now_s, partial(self._look, broker, state.changes))

    def _look(self, broker: int, changes: int) -> None:
        if self._cluster.brokers[broker].changes != changes:
            return
        self._woken.discard(broker)
        self._drop_deleted()
        now_ms = self._cluster.clock.time_ms()
        for name, stored in self._cloud.partitions.items():
            stored.settings = self._settings(self._by_name[name])
        polled = self._cloud.poll(broker, now_ms=now_ms)
        if polled is not None and self._rests(polled):
            self._cloud.running[broker].discard(polled)
            polled = None
        if polled is None:
            self._wake_for_tombstones(broker, now_ms)
            return
        job = self._cloud.begin(broker, polled, now_ms=now_ms)
        if job is not None:
            pass_s = self._cluster.random.uniform(SHORTEST_PASS_S, LONGEST_PASS_S)
            self._cluster.clock.after(pass_s, partial(self._commit, broker, changes, job))

    def _commit(self, broker: int, changes: int, job: Job) -> None:
        self._drop_deleted()
        if not job.updates or self._cluster.brokers[broker].changes != changes:
            return
        self._cloud.commit(job, now_ms=self._cluster.clock.time_ms())
        self._touch(self._by_name[job.name])
        self._wake(broker, 0.0)

    def _rests(self, name: str) -> bool:
        """Return whether a partition hands over nothing, and removes no expired tombstone."""
        return self._cluster.topic(self._by_name[name].topic)["min.cleanable.dirty.ratio"] >= AT_REST

    def _wake_for_tombstones(self, broker: int, now_ms: int) -> None:
        moments = [
            entry.cleaned_at_ms + stored.settings.delete_retention_ms
            for name, stored in self._cloud.partitions.items()
            if not self._rests(name)
            for entry in stored.log.tombstones
        ]
        if later := [moment for moment in moments if moment > now_ms]:
            self._wake(broker, (min(later) - now_ms) / 1000)


def _decided(replica: Replica, start: int, end: int) -> Iterator[ModelBatch]:
    for batch in replica.from_offset(start):
        if batch.base_offset >= end:
            return
        if batch.control or replica.is_aborted(batch):
            # An empty batch for its offsets; the last batch marks the end of L1.
            yield ModelBatch(batch.base_offset, batch.last_offset, (), batch.max_timestamp_ms)
        else:
            yield replace(batch, transactional=False)
