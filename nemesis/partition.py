"""A network partition: the broker keeps running, and reaches no other process.

Its link is down, as if the cable were unplugged: connections stay open on both sides until one side closes them. A
fetch in flight may still be answered, as with `pause`.
"""

from harness.runtimes.base import Links
from nemesis.fault import LINK, BrokerState, Fault, each
from nemesis.script import script_of

BROKER_SETTINGS = {
    # A follower that is cut off waits this long (30 s by default) for an answer to its last Fetch, then connects again.
    # Until then it continues only when the leader's TCP retransmits: after as long as the partition lasted.
    "request.timeout.ms": "2000"
}

FAULT = Fault(
    name="partition",
    summary="a link that is down until the end: the broker runs on alone (needs root)",
    inject=each(lambda context, broker: context.ability(Links).cut(broker)),
    heal=each(lambda context, broker: context.ability(Links).heal(broker)),
    needs=LINK,
    broker_settings=BROKER_SETTINGS,
    broker_state=BrokerState.OUT_OF_SYNC,
)
SCRIPT = script_of(FAULT, leaving="cut broker {broker} off", rejoining="connect broker {broker} again")
