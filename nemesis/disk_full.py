"""A full disk: the broker cannot write any more, gives its log directory up and ends. Once there is room it is started.

As Kafka does when its only log directory fails (KIP-112). The records on its disk are kept until it returns.
"""

from harness.runtimes.base import Disks, Need
from nemesis.fault import BrokerState, Fault, FaultContext, each
from nemesis.script import Act, script_of


def make_room(context: FaultContext, broker: int) -> None:
    """Make room on the broker's disk, and start it."""
    context.ability(Disks).free_disk(broker)
    context.cluster.runtime.start(broker)


def leave(context: FaultContext) -> None:
    """Fill the brokers' disks, and write until they have ended."""
    FAULT.inject(context)
    context.write_ballast()
    runtime = context.cluster.runtime
    context.cluster.wait(
        lambda: not any(runtime.is_up(broker) for broker in context.brokers), "the brokers without disk space to end"
    )


FAULT = Fault(
    name="disk-full",
    summary="the disk is full, the broker ends, and is started at the end (needs root)",
    inject=each(lambda context, broker: context.ability(Disks).fill_disk(broker)),
    heal=each(make_room),
    needs=frozenset({Need.DISK}),
    broker_state=BrokerState.DOWN,
    soak_excluded="the broker ends by itself, some time after the fault",
)
SCRIPT = script_of(
    FAULT, leave=Act("fill the disk of broker {broker}", leave), rejoining="make room for broker {broker} and start it"
)
