"""SIGKILL: the broker ends at once, and is started again on the data on its disk."""

from nemesis.fault import BrokerState, Fault, kill, start
from nemesis.script import script_of

FAULT = Fault(
    name="kill", summary="SIGKILL, and a restart at the end", inject=kill, heal=start, broker_state=BrokerState.DOWN
)
SCRIPT = script_of(FAULT, leaving="kill broker {broker}", rejoining="restart broker {broker}")
