"""No fault at all: a replica is added, and leadership moves in the middle of its first copy.

The leaders have cleaned the partition to different extents, as the cleaner of one broker is late: that broker has a
longer ``log.cleaner.backoff.ms``. The copy gets the payload from that broker, which also still holds the tombstone or
marker. Before the copy reaches that offset, leadership moves to a replica that removed it long ago.
No broker is away, and nothing is removed while the copy is under way. Any move of replicas and leaders can do this,
whatever the retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import throttle
from nemesis.fault import Nemesis, start

if TYPE_CHECKING:
    from harness.schedules.placement import Placement
    from nemesis.fault import NemesisContext


LEADERS = 2
"""Of each copy, in turn."""


def late_broker(placement: Placement) -> int:
    """Return the broker whose cleaner is late: the last one that stays."""
    return placement.staying[-1]


def why_unfit(placement: Placement) -> str | None:
    """Return why there are no two leaders for each partition, one of them on the broker whose cleaner is late."""
    brokers = len(placement.brokers)
    if placement.replication_factor < brokers:
        return f"a replica has to be on broker {late_broker(placement)}, too: give --replication-factor {brokers}"
    if len(placement.staying) < LEADERS:
        return f"two leaders have to stay: give --absent {brokers - LEADERS}"
    return None


def inject(context: NemesisContext) -> None:
    """Make one broker's cleaner late, and write what the copies will have to get through."""
    _delay_cleaner(context)
    context.write_ballast()


def reinject(context: NemesisContext) -> None:
    """Start the brokers, which hold no replica yet, and make the cleaner late again."""
    start(context)
    context.cluster.wait_registered()
    _delay_cleaner(context)


def _delay_cleaner(context: NemesisContext) -> None:
    cluster = context.cluster
    cluster.delay_cleaners([late_broker(cluster.placement)], context.window_s + cluster.settle_s)


def hand_over(context: NemesisContext) -> None:
    """Add the replicas, throttled, while the late broker leads; once each has the payload, let another broker lead."""
    cluster, ends = context.cluster, context.payload_ends()
    late = late_broker(cluster.placement)
    staying = {tp: [b for b in cluster.replicas[tp] if b not in context.absent] for tp in cluster.exposed}
    throttle.throttle(context)
    cluster.lead({tp: sorted(brokers, key=lambda b: b != late) for tp, brokers in staying.items()})
    cleaned_first = {
        tp: [*sorted(brokers, key=lambda b: b == late), *context.absent] for tp, brokers in staying.items()
    }
    cluster.admin.reassign(cleaned_first)
    cluster.wait(
        lambda: all(cluster.reaches(b, tp, ends[tp]) for tp in cluster.exposed for b in context.absent),
        "the new replicas to have copied the payload",
    )
    cluster.elect(cleaned_first)


def heal(context: NemesisContext) -> None:
    """Lift the throttle, and let every cleaner go on as the others do."""
    throttle.lift(context)
    context.cluster.restore_cleaners()


NEMESIS = Nemesis(
    name="relay",
    summary="no fault: a replica is added, and its leader changes in mid-copy to one that was cleaned earlier",
    leaving="delay one cleaner, before replicas are added on broker {broker}",
    exposing="add replicas on broker {broker}, throttled, and move leadership in mid-copy",
    returning="lift the throttle on broker {broker}",
    inject=inject,
    expose=hand_over,
    heal=heal,
    joins=True,
    hands_over=True,
    reinject=reinject,
    broker_settings=throttle.BROKER_SETTINGS,
    why_unfit=why_unfit,
)
