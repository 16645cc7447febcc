"""No fault: the healthy control, in which every replica sees everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.runtimes.base import Runtime


def leave(runtime: Runtime, broker: int) -> None:
    """Do nothing."""


def come_back(runtime: Runtime, broker: int) -> None:
    """Do nothing."""
