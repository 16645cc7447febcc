"""A lossy link: a fifth of all packets to and from the brokers is lost, and nobody is away for good.

TCP makes up for it, slowly: the brokers fall behind and catch up again. What a run shows under it is judged as a
run in which everybody was there. Mostly it is clean; but a broker that falls behind for longer than the retention
misses what was removed meanwhile, and then some record of the filler diverges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.runtimes.abilities import LossyLinks
from nemesis.fault import FIREWALL, Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext

FRACTION = 0.2
"""As Jepsen's flaky network. With a third, TCP stalls again and again for longer than the fast timers allow."""


def inject(context: NemesisContext) -> None:
    """Begin to lose packets."""
    for broker in context.absent:
        context.ability(LossyLinks).lose(broker, FRACTION)


def heal(context: NemesisContext) -> None:
    """Lose none any more."""
    context.ability(LossyLinks).clear_links()


NEMESIS = Nemesis(
    name="lossy",
    summary="nobody is away: the broker's link loses a fifth of all packets (needs root)",
    leaving="lose packets of broker {broker}",
    returning="lose no more packets of broker {broker}",
    inject=inject,
    heal=heal,
    takes_away=False,
    needs=FIREWALL,
)
