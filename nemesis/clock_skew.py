"""A clock that is ahead: the broker believes that it is an hour later, and nobody is away.

Its timers run on its own clock: it rolls segments, forgets producers and lets horizons pass at other times than the
others. What a run shows under it is judged as a run in which everybody was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.runtimes.abilities import Clocks, Need
from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext

AHEAD_S = 3600


def inject(context: NemesisContext) -> None:
    """Put the clocks forward."""
    for broker in context.absent:
        context.ability(Clocks).skew(broker, AHEAD_S)


def heal(context: NemesisContext) -> None:
    """Put them right."""
    for broker in context.absent:
        context.ability(Clocks).skew(broker, 0)


NEMESIS = Nemesis(
    name="clock-skew",
    summary="nobody is away: the broker's clock is an hour ahead (needs libfaketime)",
    leaving="put the clock of broker {broker} forward",
    returning="put the clock of broker {broker} right",
    inject=inject,
    heal=heal,
    takes_away=False,
    needs=frozenset({Need.CLOCK}),
)
