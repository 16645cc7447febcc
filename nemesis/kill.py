"""SIGKILL: the broker is gone at once, and comes back on the data it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.runtimes.base import Runtime


def leave(runtime: Runtime, broker: int) -> None:
    """Kill the broker."""
    runtime.kill(broker)


def come_back(runtime: Runtime, broker: int) -> None:
    """Start it again."""
    runtime.start(broker)
