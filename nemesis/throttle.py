"""Slows a replica's copying down (KIP-73), as operators do it with ``kafka-reassign-partitions --throttle``.

The follower's throttle spares replicas that are in the ISR (`ReplicaFetcherThread.shouldFollowerThrottle`), so
only those that are being copied are held back. A fetch that begins within the quota is taken whole, so the pace
is kept only by small fetches: brokers need `BROKER_SETTINGS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds

REPLICAS = "follower.replication.throttled.replicas"
RATE = "follower.replication.throttled.rate"
EVERY_REPLICA = "*"

BROKER_SETTINGS = {"replica.fetch.max.bytes": "32768"}


def throttle(grounds: Grounds) -> None:
    """Hold back every replica that is not in its ISR. The rate is a broker's, over all its partitions."""
    cluster = grounds.cluster
    copied = cluster.exposed
    cluster.admin.alter_topics(sorted({topic for topic, _ in copied}), {REPLICAS: EVERY_REPLICA})
    cluster.admin.alter_brokers({RATE: str(grounds.copy_bytes_per_s * len(copied))})


def lift(grounds: Grounds) -> None:
    """Let them copy as fast as they can."""
    cluster = grounds.cluster
    cluster.admin.alter_brokers({RATE: None})
    cluster.admin.alter_topics(sorted({topic for topic, _ in cluster.exposed}), {REPLICAS: None})


def away_again(grounds: Grounds) -> None:
    """Start them; the cluster has kept the throttle."""
    for broker in grounds.absent:
        grounds.cluster.runtime.start(broker)
    grounds.cluster.wait_registered()
