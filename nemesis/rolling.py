"""A rolling restart in which the first brokers take longer than the retention: an upgrade that hangs.

Every broker is shut down in an orderly way and started again, one after the other; but the absent brokers stay down
until the window is over. The others follow once the absent brokers are back.
"""

from nemesis import stop
from nemesis.fault import FaultContext
from nemesis.script import Act, script_of


def rejoin(context: FaultContext) -> None:
    """Start the absent brokers, then restart every other broker in turn."""
    cluster = context.cluster
    stop.FAULT.heal(context)
    cluster.wait_absent_back()
    for broker in cluster.staying:
        cluster.runtime.stop(broker)
        cluster.runtime.start(broker)
        cluster.wait_registered()
        cluster.wait_absent_back()


SCRIPT = script_of(
    stop.FAULT,
    name="rolling",
    summary="a rolling restart in which the broker stays down until the window is over",
    leaving="shut broker {broker} down",
    rejoin=Act("start broker {broker}, and restart the others in turn", rejoin),
    soak_excluded="a script: soak draws stop",
)
