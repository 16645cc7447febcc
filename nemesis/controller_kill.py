"""SIGKILL, and during the outage the active controller is killed too: an election in mid-outage.

The killed controller is restarted at once. It leads partitions and coordinates transactions as well, so that leaders
and coordinators move.
"""

from harness.errors import HarnessError
from harness.schedules.placement import Placement
from nemesis import kill
from nemesis.fault import FaultContext
from nemesis.script import Act, script_of

QUORUM = 3


def why_unfit(placement: Placement) -> str | None:
    """Return why no quorum survives."""
    if len(placement.staying) < QUORUM:
        return f"a quorum of {QUORUM} controllers has to stay: give --brokers {QUORUM + len(placement.absent)} or more"
    return None


def leave(context: FaultContext) -> None:
    """Kill the absent brokers, then the controller; wait until another controller is elected and it is back."""
    cluster = context.cluster
    kill.FAULT.inject(context)
    cluster.wait_absent_left()
    cluster.wait(lambda: cluster.active_controller() is not None, "an active controller")
    active = cluster.active_controller()
    if active is None:
        raise HarnessError("the active controller was not killed: no broker named it any more")
    cluster.runtime.kill(active)
    cluster.wait(lambda: cluster.active_controller() not in {None, active}, "another controller to be elected")
    # The new controller counts sessions from its own start. Until it fences the killed controller, that is in every
    # ISR, so that nobody could see it return.
    cluster.wait(lambda: active not in (cluster.registered() or {active}), f"controller {active} to be given up")
    cluster.runtime.start(active)
    cluster.wait_registered(cluster.staying)
    cluster.wait_in_isr(cluster.staying)


SCRIPT = script_of(
    kill.FAULT,
    name="controller-kill",
    summary="SIGKILL, and the active controller is killed and restarted meanwhile (four brokers)",
    leave=Act("kill broker {broker}, then the controller", leave),
    rejoining="restart broker {broker}",
    quorum=QUORUM,
    why_unfit=why_unfit,
    soak_excluded="soak draws kill: every broker is a controller, too",
)
