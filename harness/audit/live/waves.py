"""Divides the partitions of a cluster into waves: each is read, judged and deleted before the next."""

from __future__ import annotations

from collections.abc import Mapping
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
    sizes: dict[Place, int] = dict.fromkeys(cluster.state.partitions, 0)
    for (_, place), size in sizes_bytes(cluster, statuses.replicas).items():
        sizes[place] += size
    return divided(sizes, limit_bytes)


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
