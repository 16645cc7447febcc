"""SIGKILL, and while the broker is away the active controller is killed too: an election in mid-outage.

The killed controller comes back at once. It leads partitions and coordinates transactions as well, so that leaders
and coordinators move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis, kill, nothing, start

if TYPE_CHECKING:
    from harness.schedules.placement import Placement
    from nemesis.fault import NemesisContext

QUORUM = 3


def why_unfit(placement: Placement) -> str | None:
    """Return why there is no quorum that survives."""
    if len(placement.staying) < QUORUM:
        return f"a quorum of {QUORUM} controllers has to stay: give --brokers {QUORUM + len(placement.absent)} or more"
    return None


def inject(context: NemesisContext) -> None:
    """Kill the absent brokers, then the controller, and wait until another one is elected and it is back."""
    cluster = context.cluster
    kill(context)
    cluster.wait_absent_left()
    cluster.wait(lambda: cluster.active_controller() is not None, "an active controller")
    active = cluster.active_controller()
    if active is not None:
        cluster.runtime.kill(active)
        cluster.wait(lambda: cluster.active_controller() not in {None, active}, "another controller to be elected")
        # The new one counts sessions from its own beginning. Until it gives the killed one up, that is in every ISR,
        # so that its return could not be seen.
        cluster.wait(lambda: active not in cluster.registered(), f"the killed controller {active} to be given up")
        cluster.runtime.start(active)
        cluster.wait_registered(cluster.placement.staying)
    cluster.wait_in_isr(cluster.placement.staying)


NEMESIS = Nemesis(
    name="controller-kill",
    summary="SIGKILL, and the active controller is killed and restarted meanwhile (four brokers)",
    leaving="kill broker {broker}, then the controller",
    returning="restart broker {broker}",
    inject=inject,
    heal=start,
    reinject=nothing,
    quorum=QUORUM,
    why_unfit=why_unfit,
)
