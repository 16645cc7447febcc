"""A dead broker's replicas are unassigned, and assigned again before the broker starts: it comes back on its old log.

As when operators give up a dead broker, move its replicas away, and it comes back after all, and gets them back. While
they are unassigned every ISR is full. A broker that starts deletes only logs of replicas that are not assigned to it
(``LogManager.isStrayReplica``), so the old log stays and the replica copies what follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis, kill, nothing, start

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Kill the brokers, and unassign their replicas."""
    cluster = context.cluster
    kill(context)
    cluster.wait_absent_left()
    staying = {tp: [b for b in cluster.replicas[tp] if b not in context.absent] for tp in cluster.exposed}
    cluster.admin.reassign(staying)
    cluster.wait_assigned(staying)


def assign_again(context: NemesisContext) -> None:
    """Assign the replicas again, while the brokers are still down."""
    cluster = context.cluster
    replicas = {tp: cluster.replicas[tp] for tp in cluster.exposed}
    cluster.admin.reassign(replicas)
    cluster.wait_assigned(replicas)


NEMESIS = Nemesis(
    name="reassigned",
    summary="SIGKILL, the replica is unassigned, and assigned again before the restart",
    leaving="kill broker {broker}, and unassign its replicas",
    exposing="assign the replicas of broker {broker} again",
    returning="restart broker {broker}",
    inject=inject,
    expose=assign_again,
    heal=start,
    reinject=nothing,
)
