"""No fault: the healthy control, in which every replica sees everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis, nothing, start

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def reinject(context: NemesisContext) -> None:
    """Start them, as nobody is away."""
    start(context)
    context.cluster.wait_absent_back()


NEMESIS = Nemesis(
    name="none",
    summary="no fault: the healthy control",
    leaving="no fault",
    returning="no fault",
    inject=nothing,
    heal=nothing,
    takes_away=False,
    reinject=reinject,
)
