"""A lossy link: a fifth of all packets to and from the brokers is lost, and no broker leaves the ISR for good.

TCP retransmits them: the brokers fall behind and catch up again. A run under this fault is judged as a run without an
outage. It is usually clean; but a broker that falls behind for longer than the retention misses the records that were
removed meanwhile, and then some record of the filler diverges.
"""

from harness.runtimes.base import LossyLinks
from nemesis.fault import FIREWALL, ON_LINKS, Fault, each
from nemesis.script import script_of

FRACTION = 0.2
"""Jepsen's flaky network. With a third, TCP stalls repeatedly for longer than the fast timers allow."""

FAULT = Fault(
    name="lossy",
    summary="the broker's link loses a fifth of all packets, and no broker leaves the ISR for good (needs root)",
    inject=each(lambda context, broker: context.ability(LossyLinks).lose(broker, FRACTION)),
    heal=lambda context: context.ability(LossyLinks).clear_links(),
    needs=FIREWALL,
    alone_in=ON_LINKS,
)
SCRIPT = script_of(FAULT, leaving="lose packets of broker {broker}", rejoining="stop losing packets of broker {broker}")
