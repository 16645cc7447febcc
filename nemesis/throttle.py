"""Slows a replica's copying down (KIP-73), as operators do it with ``kafka-reassign-partitions --throttle``.

Both throttles spare replicas that are in the ISR (`ReplicaFetcherThread.shouldFollowerThrottle`,
`ReplicaManager.shouldLeaderThrottle`), so only those that are being copied are held back. It takes both: a broker
that has just started fetches before it has read its own throttle, and several leaders together send faster than
one follower is to copy. A fetch that begins within the quota is taken whole, so the pace is kept only by small
fetches: brokers need `BROKER_SETTINGS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import start

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext

REPLICAS = "{side}.replication.throttled.replicas"
RATE = "{side}.replication.throttled.rate"
LEADER, FOLLOWER = "leader", "follower"
EVERY_REPLICA = "*"

BROKER_SETTINGS = {"replica.fetch.max.bytes": "32768"}


def throttle(context: NemesisContext) -> None:
    """Hold back every replica that is not in its ISR. A rate is a broker's, over all that it copies or sends."""
    cluster = context.cluster
    rate = context.copy_bytes_per_s * len(cluster.exposed)
    cluster.admin.alter_topics(_topics(context), {REPLICAS.format(side=s): EVERY_REPLICA for s in (LEADER, FOLLOWER)})
    cluster.admin.alter_brokers(
        {RATE.format(side=LEADER): str(rate * len(context.absent)), RATE.format(side=FOLLOWER): str(rate)}
    )


def lift(context: NemesisContext) -> None:
    """Let them copy as fast as they can."""
    cluster = context.cluster
    cluster.admin.alter_brokers({RATE.format(side=s): None for s in (LEADER, FOLLOWER)})
    cluster.admin.alter_topics(_topics(context), {REPLICAS.format(side=s): None for s in (LEADER, FOLLOWER)})


def reinject(context: NemesisContext) -> None:
    """Start them; the cluster has kept the throttle."""
    start(context)
    context.cluster.wait_registered()


def _topics(context: NemesisContext) -> list[str]:
    return sorted({topic for topic, _ in context.cluster.exposed})
