"""SIGKILL: the broker is gone at once, and comes back on the data it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Kill the brokers."""
    for broker in grounds.absent:
        grounds.cluster.runtime.kill(broker)


def come_back(grounds: Grounds) -> None:
    """Start them again."""
    for broker in grounds.absent:
        grounds.cluster.runtime.start(broker)


def away_again(grounds: Grounds) -> None:
    """Leave them down."""
