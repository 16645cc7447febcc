"""Leadership moves to a broker, and stays there."""

from contextlib import suppress
from typing import Final

from harness.errors import WaitTimeoutError
from nemesis.fault import ON_ASSIGNMENT, Fault, FaultContext

WAIT_S: Final = 5.0


def lead(context: FaultContext) -> None:
    """Have the broker lead every partition in whose ISR it is, unless another fault prevents it."""
    cluster = context.cluster
    (broker,) = context.brokers
    orders = {
        tp: [broker, *(b for b in state.replicas if b != broker)]
        for tp, state in cluster.states().items()
        if broker in state.isr and state.leader != broker
    }
    if orders:
        cluster.control.lead(orders)
        with suppress(WaitTimeoutError):
            cluster.wait(lambda: cluster.control.leads(orders), f"broker {broker} to lead", WAIT_S)


FAULT = Fault(
    name="lead",
    summary="leadership moves to the broker",
    inject=lead,
    heal=lambda _: None,
    needs_broker_up=True,
    alone_in=ON_ASSIGNMENT,
)
