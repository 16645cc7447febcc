"""A slow link: whatever the brokers send arrives late, and nobody is away.

As a replica on another continent. What a run shows under it is judged as a run in which everybody was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.runtimes.abilities import Need, SlowLinks
from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext

DELAY_MS = 150
"""Shorter than the fast timers' session, so that heartbeats arrive in time."""


def inject(context: NemesisContext) -> None:
    """Slow the links down."""
    for broker in context.absent:
        context.ability(SlowLinks).delay(broker, DELAY_MS)


def heal(context: NemesisContext) -> None:
    """Let them be fast again."""
    context.ability(SlowLinks).clear_links()


NEMESIS = Nemesis(
    name="slow",
    summary="nobody is away: the broker's link is slow (needs root, and a kernel with netem)",
    leaving="slow the link of broker {broker}",
    returning="let the link of broker {broker} be fast",
    inject=inject,
    heal=heal,
    takes_away=False,
    needs=frozenset({Need.DELAY}),
)
