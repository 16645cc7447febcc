"""SIGKILL: the broker is gone at once, and comes back on the data it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Kill the brokers."""
    for broker in context.absent:
        context.cluster.runtime.kill(broker)


def heal(context: NemesisContext) -> None:
    """Start them again."""
    for broker in context.absent:
        context.cluster.runtime.start(broker)


def reinject(context: NemesisContext) -> None:
    """Leave them down."""


NEMESIS = Nemesis(
    name="kill",
    summary="SIGKILL, and a restart once the window is over",
    leaving="kill broker {broker}",
    returning="restart broker {broker}",
    inject=inject,
    heal=heal,
    reinject=reinject,
)
