"""A lossy link: a fifth of all packets to and from the brokers is lost, and nobody is away for good.

TCP makes up for it, slowly: the brokers fall behind and catch up again. What a run shows under it is judged as a
run in which everybody was there. Mostly it is clean; but a broker that falls behind for longer than the retention
misses what was removed meanwhile, and then some record of the filler diverges.
"""

from harness.runtimes.abilities import LossyLinks
from nemesis.fault import FIREWALL, Nemesis, each

FRACTION = 0.2
"""As Jepsen's flaky network. With a third, TCP stalls again and again for longer than the fast timers allow."""

NEMESIS = Nemesis(
    name="lossy",
    summary="nobody is away: the broker's link loses a fifth of all packets (needs root)",
    leaving="lose packets of broker {broker}",
    returning="lose no more packets of broker {broker}",
    inject=each(lambda context, broker: context.ability(LossyLinks).lose(broker, FRACTION)),
    heal=lambda context: context.ability(LossyLinks).clear_links(),
    takes_away=False,
    needs=FIREWALL,
)
