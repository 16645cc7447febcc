"""A slow link: all packets from the brokers arrive late, and no broker leaves the ISR.

The same happens with a replica on another continent. A run under this fault is judged as a run without an outage.
"""

from harness.runtimes.base import Need, SlowLinks
from nemesis.fault import ON_LINKS, Fault, each
from nemesis.script import script_of

DELAY_MS = 150
"""Shorter than the fast timers' session, so that heartbeats arrive in time."""

FAULT = Fault(
    name="slow",
    summary="the broker's link is slow, and no broker leaves the ISR (needs root, and a kernel with netem)",
    inject=each(lambda context, broker: context.ability(SlowLinks).delay(broker, DELAY_MS)),
    heal=lambda context: context.ability(SlowLinks).clear_links(),
    needs=frozenset({Need.DELAY}),
    alone_in=ON_LINKS,
)
SCRIPT = script_of(FAULT, leaving="slow the link of broker {broker}", rejoining="restore the link of broker {broker}")
