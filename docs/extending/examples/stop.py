"""An orderly shutdown: the broker hands its leadership over, and is started again once the window is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Shut the brokers down."""
    for broker in context.absent:
        context.cluster.runtime.stop(broker)


def heal(context: NemesisContext) -> None:
    """Start them again."""
    for broker in context.absent:
        context.cluster.runtime.start(broker)


def reinject(context: NemesisContext) -> None:
    """Leave them down."""


NEMESIS = Nemesis(
    name="stop",
    summary="an orderly shutdown, and a start once the window is over",
    leaving="shut broker {broker} down",
    returning="start broker {broker}",
    inject=inject,
    heal=heal,
    reinject=reinject,
)
