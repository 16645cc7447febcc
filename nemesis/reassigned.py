"""An outage in which the broker's replicas are unassigned and assigned again, so that it returns on its old log.

The same happens when operators move the replicas of a dead broker to other brokers, and the broker returns after all
and gets its replicas again. While they are unassigned every ISR is complete. A broker that starts deletes only logs of
replicas that are not assigned to it (``LogManager.isStrayReplica``): the replica continues its old log.
"""

from nemesis import kill
from nemesis.fault import FaultContext
from nemesis.script import Act, script_of


def leave(context: FaultContext) -> None:
    """Kill the brokers, and unassign their replicas."""
    cluster = context.cluster
    kill.FAULT.inject(context)
    cluster.wait_absent_left()
    staying = {tp: [b for b in cluster.replicas[tp] if b not in context.brokers] for tp in cluster.exposed}
    cluster.admin.reassign(staying)
    cluster.wait_assigned(staying)


def assign_again(context: FaultContext) -> None:
    """Assign the replicas again, while the brokers are still down."""
    cluster = context.cluster
    replicas = {tp: cluster.replicas[tp] for tp in cluster.exposed}
    cluster.admin.reassign(replicas)
    cluster.wait_assigned(replicas)


SCRIPT = script_of(
    kill.FAULT,
    name="reassigned",
    summary="SIGKILL, the replica is unassigned, and assigned again before the restart",
    leave=Act("kill broker {broker}, and unassign its replicas", leave),
    expose=Act("assign the replicas of broker {broker} again", assign_again),
    rejoining="restart broker {broker}",
    soak_excluded="a script: soak draws unassign, and ends it while the broker is killed",
)
