"""A lossy link: a fifth of all packets to and from the brokers is lost, and nobody is away for good.

TCP makes up for it, slowly: the brokers fall behind and catch up again. What a run shows under it is judged as a
run in which everybody was there. Mostly it is clean; but a broker that falls behind for longer than the retention
misses what was removed meanwhile, and then some record of the filler diverges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds

FRACTION = 0.2
"""As Jepsen's flaky network. With a third, TCP stalls again and again for longer than the fast timers allow."""


def leave(grounds: Grounds) -> None:
    """Begin to lose packets."""
    for broker in grounds.absent:
        grounds.cluster.runtime.lose(broker, FRACTION)


def come_back(grounds: Grounds) -> None:
    """Lose none any more."""
    grounds.cluster.runtime.clear_links()
