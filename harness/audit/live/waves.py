"""Divides the partitions of a cluster into waves: each is read, judged and deleted before the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from harness.audit.live.broker_reports import ReplicaStatuses
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.spool import sizes_bytes
from harness.judge.finding import Place

SPOOL_LIMIT_BYTES: Final = 4 << 30


def waves_of(cluster: AuditedCluster, statuses: ReplicaStatuses, limit_bytes: int) -> list[list[Place]]:
    """Return the partitions in waves whose replicas have at most so many bytes, by what brokers report.

    A partition whose brokers report no size counts as empty.
    """
    return divided(partition_sizes(cluster, statuses, list(cluster.state.partitions)), limit_bytes)


def partition_sizes(cluster: AuditedCluster, statuses: ReplicaStatuses, places: Collection[Place]) -> dict[Place, int]:
    """Return the bytes of all replicas of each partition, in this order, by what brokers report now."""
    sizes = dict.fromkeys(places, 0)
    for (_, place), size in sizes_bytes(cluster, [r for r in statuses.replicas if r[1] in sizes]).items():
        sizes[place] += size
    return sizes


def divided(sizes: Mapping[Place, int], limit_bytes: int) -> list[list[Place]]:
    """Distribute partitions in order; a partition that is larger than the limit is a wave of its own."""
    waves: list[list[Place]] = []
    room = 0
    for place, size in sizes.items():
        if not waves or size > room:
            waves.append([])
            room = limit_bytes
        waves[-1].append(place)
        room -= size
    return waves
