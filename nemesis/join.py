"""No fault at all: a replica is added by reassignment, and its first copy takes longer than the retention.

As when a big compacted topic moves to a new broker under a throttle, for more than a day. The copy has passed
the payload when what ends it is written; when the copy gets there, that is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import throttle
from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Add the replicas, throttled, and wait until each has copied the payload."""
    cluster, ends = context.cluster, context.payload_ends()
    context.write_ballast()
    throttle.throttle(context)
    cluster.admin.reassign({tp: cluster.replicas[tp] for tp in cluster.exposed})
    cluster.wait(
        lambda: all(cluster.reaches(b, tp, ends[tp]) for tp in cluster.exposed for b in context.absent),
        "the new replicas to have copied the payload",
    )


NEMESIS = Nemesis(
    name="join",
    summary="no fault: a replica is added, and its first copy is throttled past the window",
    leaving="add replicas on broker {broker}, throttled",
    returning="lift the throttle on broker {broker}",
    inject=inject,
    heal=throttle.lift,
    joins=True,
    reinject=throttle.reinject,
    broker_settings=throttle.BROKER_SETTINGS,
)
