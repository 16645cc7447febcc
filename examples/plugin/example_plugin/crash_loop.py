"""A crash loop: the broker is killed, and killed again while it starts."""

from nemesis.fault import BrokerState, Fault, FaultContext, each, start
from nemesis.script import script_of


def crash(context: FaultContext, broker: int) -> None:
    """Kill the broker, start it, and kill it before it is registered."""
    runtime = context.cluster.runtime
    runtime.kill(broker)
    runtime.start(broker)
    runtime.kill(broker)


FAULT = Fault(
    name="crash-loop",
    summary="SIGKILL, again while the broker starts, and a restart at the end",
    inject=each(crash),
    heal=start,
    broker_state=BrokerState.DOWN,
)
SCRIPT = script_of(FAULT, leaving="kill broker {broker} twice", rejoining="restart broker {broker}")
