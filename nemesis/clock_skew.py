"""A clock that is ahead: the broker believes that it is an hour later, and nobody is away.

Its timers run on its own clock: it rolls segments, forgets producers and lets horizons pass at other times than the
others. What a run shows under it is judged as a run in which everybody was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds

AHEAD_S = 3600


def leave(grounds: Grounds) -> None:
    """Put the clocks forward."""
    for broker in grounds.absent:
        grounds.cluster.runtime.skew(broker, AHEAD_S)


def come_back(grounds: Grounds) -> None:
    """Put them right."""
    for broker in grounds.absent:
        grounds.cluster.runtime.skew(broker, 0)
