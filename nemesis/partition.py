"""A network partition: the broker runs on, and reaches nobody.

Its link is down, as an unplugged cable: connections stay open on both sides until somebody gives them up. As
with `pause`, a fetch that was on its way may still be answered, with what is written within
``replica.fetch.wait.max.ms``: nothing may be written before that is over. The runner waits until the broker has
left every ISR, which takes longer.
"""

from harness.runtimes.abilities import Links
from nemesis.fault import LINK, Nemesis, each

BROKER_SETTINGS = {
    # A follower that is cut off waits this long (30 s by default) for an answer to the Fetch it has sent, then
    # connects anew. Before, it goes on only when the leader's TCP tries again: after as long as it was away.
    "request.timeout.ms": "2000",
}

NEMESIS = Nemesis(
    name="partition",
    summary="a link that is down until the window is over: the broker runs on alone (needs root)",
    leaving="cut broker {broker} off",
    returning="connect broker {broker} again",
    inject=each(lambda context, broker: context.ability(Links).cut(broker)),
    heal=each(lambda context, broker: context.ability(Links).heal(broker)),
    lives_on=True,
    needs=LINK,
    broker_settings=BROKER_SETTINGS,
)
