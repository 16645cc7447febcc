"""An orderly shutdown: the broker hands its leadership over, and is started again at the end."""

from nemesis.fault import BrokerState, Fault, start, stop

FAULT = Fault(
    name="stop",
    summary="an orderly shutdown, and a start at the end",
    inject=stop,
    heal=start,
    broker_state=BrokerState.DOWN,
)
