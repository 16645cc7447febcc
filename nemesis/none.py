"""No fault: the healthy control, in which every replica sees everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Do nothing."""


def come_back(grounds: Grounds) -> None:
    """Do nothing."""


def away_again(grounds: Grounds) -> None:
    """Start them, as nobody is away."""
    for broker in grounds.absent:
        grounds.cluster.runtime.start(broker)
    grounds.cluster.wait_absent_back()
