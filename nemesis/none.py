"""No fault: the healthy control, in which every replica sees everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Do nothing."""


def heal(context: NemesisContext) -> None:
    """Do nothing."""


def reinject(context: NemesisContext) -> None:
    """Start them, as nobody is away."""
    for broker in context.absent:
        context.cluster.runtime.start(broker)
    context.cluster.wait_absent_back()


NEMESIS = Nemesis(
    name="none",
    summary="no fault: the healthy control",
    leaving="no fault",
    returning="no fault",
    inject=inject,
    heal=heal,
    takes_away=False,
    reinject=reinject,
)
