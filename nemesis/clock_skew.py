"""A clock that is ahead: the broker takes the time to be an hour later, and stays in the ISR.

Its timers use its own clock: it rolls segments, expires producers and lets delete horizons pass at other times than the
other brokers. A run under this fault is judged as a run without an outage.
"""

from harness.runtimes.base import Clocks, Need
from nemesis.fault import Fault, FaultContext, each, kill, start
from nemesis.script import Act, script_of

AHEAD_S = 3600

put_right = each(lambda context, broker: context.ability(Clocks).skew(broker, 0))


def restart_with_right_clock(context: FaultContext) -> None:
    """Kill the brokers, and start them with a clock that is right.

    A broker that keeps running does not connect, for as long as its clock was ahead, to the brokers to which it was
    about to connect when its clock was put right: the wall clock measures the back-off of connections
    (``ClusterConnectionStates``). Seen on 4.4.0: a controller that got no answer from its leader for the rest of a soak
    round, and another that did not shut down.
    """
    kill(context)
    put_right(context)
    start(context)


FAULT = Fault(
    name="clock-skew",
    summary="the broker's clock is an hour ahead, and no broker leaves the ISR (needs libfaketime)",
    inject=each(lambda context, broker: context.ability(Clocks).skew(broker, AHEAD_S)),
    heal=restart_with_right_clock,
    needs=frozenset({Need.CLOCK}),
    needs_broker_up=True,
)
SCRIPT = script_of(
    FAULT,
    leaving="put the clock of broker {broker} forward",
    rejoin=Act("put the clock of broker {broker} right", put_right),
)
