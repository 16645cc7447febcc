"""A rolling restart in which the first brokers take longer than the retention: an upgrade that hangs.

Every broker is shut down in an orderly way and started again, one after the other; but the absent ones stay down until
the window is over. The others follow once those are back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Shut the absent brokers down."""
    for broker in grounds.absent:
        grounds.cluster.runtime.stop(broker)


def come_back(grounds: Grounds) -> None:
    """Start them, then restart every other broker in turn."""
    cluster = grounds.cluster
    for broker in grounds.absent:
        cluster.runtime.start(broker)
    cluster.wait_absent_back()
    for broker in cluster.placement.staying:
        cluster.runtime.stop(broker)
        cluster.runtime.start(broker)
        cluster.wait_registered()
        cluster.wait_absent_back()


def away_again(grounds: Grounds) -> None:
    """Leave them down."""
