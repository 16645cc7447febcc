"""SIGSTOP: the broker is frozen with everything in its memory, and continues where it was.

The same happens in a long garbage collection or a suspended virtual machine. A fetch that is in flight when the broker
freezes may still be answered, with everything that is written within ``replica.fetch.wait.max.ms``: nothing may be
written before that time is over. The runner waits until the broker has left every ISR, which takes longer.
"""

from nemesis.fault import BrokerState, Fault, each
from nemesis.script import script_of

FAULT = Fault(
    name="pause",
    summary="SIGSTOP, and SIGCONT at the end",
    inject=each(lambda context, broker: context.cluster.runtime.pause(broker)),
    heal=each(lambda context, broker: context.cluster.runtime.resume(broker)),
    broker_state=BrokerState.OUT_OF_SYNC,
)
SCRIPT = script_of(FAULT, leaving="pause broker {broker}", rejoining="resume broker {broker}")
