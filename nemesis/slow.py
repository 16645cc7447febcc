"""A slow link: whatever the brokers send arrives late, and nobody is away.

As a replica on another continent. What a run shows under it is judged as a run in which everybody was there.
"""

from harness.runtimes.abilities import Need, SlowLinks
from nemesis.fault import Nemesis, each

DELAY_MS = 150
"""Shorter than the fast timers' session, so that heartbeats arrive in time."""

NEMESIS = Nemesis(
    name="slow",
    summary="nobody is away: the broker's link is slow (needs root, and a kernel with netem)",
    leaving="slow the link of broker {broker}",
    returning="let the link of broker {broker} be fast",
    inject=each(lambda context, broker: context.ability(SlowLinks).delay(broker, DELAY_MS)),
    heal=lambda context: context.ability(SlowLinks).clear_links(),
    takes_away=False,
    needs=frozenset({Need.DELAY}),
)
