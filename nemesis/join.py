"""No fault: a replica is added by reassignment, and its first copy takes longer than the retention.

An example is a big compacted topic that moves to a new broker under a throttle, for more than a day. The copy has
passed the payload when its tombstone or marker is written; when the copy gets there, the tombstone or marker has been
removed.
"""

from nemesis import throttle
from nemesis.fault import FaultContext
from nemesis.script import Act, script_of


def leave(context: FaultContext) -> None:
    """Add the replicas, throttled, and wait until each has copied the payload."""
    cluster = context.cluster
    context.write_ballast()
    throttle.FAULT.inject(context)
    cluster.admin.reassign({tp: cluster.replicas[tp] for tp in cluster.exposed})
    cluster.wait(context.have_copied_payload, "the new replicas to have copied the payload")


SCRIPT = script_of(
    throttle.FAULT,
    name="join",
    summary="no fault: a replica is added, and its first copy is throttled past the window",
    leave=Act("add replicas on broker {broker}, throttled", leave),
    rejoining="lift the throttle on broker {broker}",
    joins=True,
    resume=throttle.resume,
    soak_excluded="a script: soak draws unassign under throttle",
)
