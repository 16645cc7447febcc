"""A clock that is ahead: the broker believes that it is an hour later, and nobody is away.

Its timers run on its own clock: it rolls segments, forgets producers and lets horizons pass at other times than the
others. What a run shows under it is judged as a run in which everybody was there.
"""

from harness.runtimes.abilities import Clocks, Need
from nemesis.fault import Nemesis, each

AHEAD_S = 3600

NEMESIS = Nemesis(
    name="clock-skew",
    summary="nobody is away: the broker's clock is an hour ahead (needs libfaketime)",
    leaving="put the clock of broker {broker} forward",
    returning="put the clock of broker {broker} right",
    inject=each(lambda context, broker: context.ability(Clocks).skew(broker, AHEAD_S)),
    heal=each(lambda context, broker: context.ability(Clocks).skew(broker, 0)),
    takes_away=False,
    needs=frozenset({Need.CLOCK}),
)
