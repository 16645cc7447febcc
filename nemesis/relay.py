"""No fault: a replica is added, and leadership moves in the middle of its first copy.

The cleaner of one broker is late, by a longer ``log.cleaner.backoff.ms``: that broker has the payload, which the copy
gets from it, and still has the tombstone or marker. Before the copy reaches that offset, leadership moves to a replica
that removed it long ago. No broker is down, and nothing is removed during the copy. Any move of replicas and leaders
can do this, whatever the retention.
"""

from harness.schedules.placement import Placement
from nemesis import late_cleaner, throttle
from nemesis.fault import FaultContext
from nemesis.script import Act, Members, Script

LEADERS = 2
"""The leaders of each copy, in turn."""


def late_broker(members: Members) -> int:
    """Return the broker with the late cleaner: the last broker that stays."""
    return members.staying[-1]


def why_unfit(placement: Placement) -> str | None:
    """Return why there are no two leaders for each partition, one of them on the broker whose cleaner is late."""
    brokers = len(placement.brokers)
    if placement.replication_factor < brokers:
        return f"a replica has to be on broker {late_broker(placement)}, too: give --replication-factor {brokers}"
    if len(placement.staying) < LEADERS:
        return f"two leaders have to stay: give --absent {brokers - LEADERS}"
    return None


def leave(context: FaultContext) -> None:
    """Make one broker's cleaner late, and write the records that the copies have to pass."""
    _delay_cleaner(context)
    context.write_ballast()


def resume(context: FaultContext) -> None:
    """Start the absent brokers, which have no replica yet, and make the cleaner late again."""
    throttle.resume(context)
    _delay_cleaner(context)


def _delay_cleaner(context: FaultContext) -> None:
    cluster = context.cluster
    cluster.delay_cleaners([late_broker(cluster)], context.window_s + cluster.settle_s)


def hand_over(context: FaultContext) -> None:
    """Add the replicas, throttled, while the late broker leads; once each has the payload, let another broker lead."""
    cluster = context.cluster
    late = late_broker(cluster)
    staying = {tp: [b for b in cluster.replicas[tp] if b not in context.brokers] for tp in cluster.exposed}
    throttle.FAULT.inject(context)
    cluster.lead({tp: sorted(brokers, key=lambda b: b != late) for tp, brokers in staying.items()})
    cleaned_first = {tp: [*sorted(up, key=lambda b: b == late), *context.brokers] for tp, up in staying.items()}
    cluster.admin.reassign(cleaned_first)
    cluster.wait(context.have_copied_payload, "the new replicas to have copied the payload")
    cluster.elect(cleaned_first)


def rejoin(context: FaultContext) -> None:
    """Lift the throttle, and restore the back-off of the cleaner."""
    throttle.FAULT.heal(context)
    context.cluster.restore_cleaners()


SCRIPT = Script(
    name="relay",
    summary="no fault: a replica is added, and its leader changes in mid-copy to one that was cleaned earlier",
    faults=(late_cleaner.FAULT, throttle.FAULT),
    leave=Act("delay one cleaner, before replicas are added on broker {broker}", leave),
    expose=Act("add replicas on broker {broker}, throttled, and move leadership in mid-copy", hand_over),
    rejoin=Act("lift the throttle on broker {broker}", rejoin),
    joins=True,
    hands_over=True,
    resume=resume,
    why_unfit=why_unfit,
    soak_excluded="a script: soak draws unassign, throttle, late-cleaner and lead",
)
