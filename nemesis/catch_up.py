"""A short outage, within the retention, and a catch-up that takes longer than the retention.

A replica that is in the ISR is never throttled, so a throttle alone has no effect: it takes a short outage with so many
writes that the broker has to catch up.
"""

from nemesis import kill, throttle
from nemesis.fault import FaultContext
from nemesis.script import Act, script_of


def leave(context: FaultContext) -> None:
    """Kill the brokers, write until they are behind, and start them again under a throttle."""
    cluster = context.cluster
    kill.FAULT.inject(context)
    cluster.wait_absent_left()
    context.write_ballast()
    throttle.FAULT.inject(context)
    kill.FAULT.heal(context)
    cluster.wait_registered()
    since_s = cluster.clock.now_s()
    cluster.wait(
        lambda: all(cluster.observed.looked_since(broker, since_s) for broker in context.brokers),
        "the restarted brokers to serve their replicas",
    )


SCRIPT = script_of(
    throttle.FAULT,
    name="catch-up",
    summary="SIGKILL and a restart at once, and a catch-up that is throttled past the window",
    faults=(kill.FAULT, throttle.FAULT),
    leave=Act("kill broker {broker}, restart it, throttled", leave),
    rejoining="lift the throttle on broker {broker}",
    resume=throttle.resume,
    soak_excluded="a script: soak draws kill under throttle",
)
