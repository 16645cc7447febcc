"""Away for a moment only, and back within the retention; but its catch-up takes longer than that.

An in-sync replica is never throttled, so the throttle alone does nothing: it takes a short outage, in which so
much is written that the broker has to catch up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import kill, throttle

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Kill the brokers, write until they are behind, and start them again under a throttle."""
    cluster = grounds.cluster
    kill.leave(grounds)
    cluster.wait_absent_left()
    grounds.write_ballast()
    throttle.throttle(grounds)
    kill.come_back(grounds)
    cluster.wait_registered()
    since_s = cluster.clock.now_s()
    cluster.wait(
        lambda: all(cluster.observer.looked_since(broker, since_s) for broker in grounds.absent),
        "the restarted brokers to serve their replicas",
    )


def come_back(grounds: Grounds) -> None:
    """Let the catch-up run to its end."""
    throttle.lift(grounds)
