"""Away for a moment only, and back within the retention; but its catch-up takes longer than that.

An in-sync replica is never throttled, so the throttle alone does nothing: it takes a short outage, in which so
much is written that the broker has to catch up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import throttle
from nemesis.fault import Nemesis, kill, start

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Kill the brokers, write until they are behind, and start them again under a throttle."""
    cluster = context.cluster
    kill(context)
    cluster.wait_absent_left()
    context.write_ballast()
    throttle.throttle(context)
    start(context)
    cluster.wait_registered()
    since_s = cluster.clock.now_s()
    cluster.wait(
        lambda: all(cluster.observer.looked_since(broker, since_s) for broker in context.absent),
        "the restarted brokers to serve their replicas",
    )


NEMESIS = Nemesis(
    name="catch-up",
    summary="SIGKILL and a restart at once, and a catch-up that is throttled past the window",
    leaving="kill broker {broker}, restart it, throttled",
    returning="lift the throttle on broker {broker}",
    inject=inject,
    heal=throttle.lift,
    reinject=throttle.reinject,
    broker_settings=throttle.BROKER_SETTINGS,
)
