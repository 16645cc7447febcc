"""A slow link: whatever the brokers send arrives late, and nobody is away.

As a replica on another continent. What a run shows under it is judged as a run in which everybody was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds

DELAY_MS = 150
"""Shorter than the fast timers' session, so that heartbeats arrive in time."""


def leave(grounds: Grounds) -> None:
    """Slow the links down."""
    for broker in grounds.absent:
        grounds.cluster.runtime.delay(broker, DELAY_MS)


def come_back(grounds: Grounds) -> None:
    """Let them be fast again."""
    grounds.cluster.runtime.clear_links()
