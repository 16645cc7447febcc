"""No fault at all: a replica is added by reassignment, and its first copy takes longer than the retention.

As when a big compacted topic moves to a new broker under a throttle, for more than a day. The copy has passed
the payload when what ends it is written; when the copy gets there, that is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import throttle

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Add the replicas, throttled, and wait until each has copied the payload."""
    cluster = grounds.cluster
    ends = cluster.acknowledged_ends()
    payload_ends = {tp: ends[tp] for tp in cluster.exposed}
    grounds.write_ballast()
    throttle.throttle(grounds)
    cluster.admin.reassign({tp: cluster.replicas[tp] for tp in cluster.exposed})
    cluster.wait(
        lambda: all(cluster.reaches(b, tp, end) for tp, end in payload_ends.items() for b in grounds.absent),
        "the new replicas to have copied the payload",
    )


def come_back(grounds: Grounds) -> None:
    """Let the copy run to its end."""
    throttle.lift(grounds)
