"""Throttled replication (KIP-73), as operators do it with ``kafka-reassign-partitions --throttle``.

Both throttles spare replicas in the ISR (`ReplicaFetcherThread.shouldFollowerThrottle`,
`ReplicaManager.shouldLeaderThrottle`). It takes both: a broker that has just started fetches before it has read its own
throttle, and several leaders together send faster than a single follower may copy. A fetch that begins within the quota
is answered in full: the broker settings make fetches small.
"""

from nemesis.fault import Fault, FaultContext, start

REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def throttle(context: FaultContext) -> None:
    """Throttle every replica that is not in its ISR. The rate is per broker, over all its copies."""
    admin, rate = context.cluster.admin, context.copy_bytes_per_s * len(context.exposed)
    rates = (str(rate * len(context.brokers)), str(rate))
    admin.alter_topics(_topics(context), dict.fromkeys(REPLICAS, "*"))
    admin.alter_brokers(dict(zip(RATES, rates, strict=True)))


def lift(context: FaultContext) -> None:
    """Remove the throttles."""
    context.cluster.admin.alter_brokers(dict.fromkeys(RATES))
    context.cluster.admin.alter_topics(_topics(context), dict.fromkeys(REPLICAS))


def resume(context: FaultContext) -> None:
    """Start the absent brokers. The throttles are settings of the cluster, and still there."""
    start(context)
    context.cluster.wait_registered()


def _topics(context: FaultContext) -> list[str]:
    return sorted({topic for topic, _ in context.exposed})


FAULT = Fault(
    name="throttle",
    summary="replicas that are not in their ISR copy slowly",
    inject=throttle,
    heal=lift,
    broker_settings={"replica.fetch.max.bytes": "32768"},
    alone_in="throttle",
)
