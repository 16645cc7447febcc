"""A link that works in one direction: the absent brokers hear everybody, and nobody hears them.

No connection survives that, as acknowledgements are lost too; but what was sent to a broker before is still
delivered, and it keeps trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import partition, topology
from nemesis.fault import FIREWALL, Nemesis

if TYPE_CHECKING:
    from harness.plan.placement import Placement
    from nemesis.fault import NemesisContext


def shape(placement: Placement) -> topology.Graph:
    """Return everybody's graph without the links that lead away from the absent brokers."""
    graph = topology.everybody(placement.brokers)
    graph.remove_edges_from(
        [link for link in topology.everybody(placement.brokers).edges if link[0] in placement.absent]
    )
    return graph


def inject(context: NemesisContext) -> None:
    """Silence them."""
    topology.impose(context, shape(context.cluster.placement))


NEMESIS = Nemesis(
    name="one-way",
    summary="the broker hears everybody, and nobody hears it (needs root)",
    leaving="silence broker {broker}",
    returning="let broker {broker} be heard",
    inject=inject,
    heal=topology.lift,
    lives_on=True,
    needs=FIREWALL,
    broker_settings=partition.BROKER_SETTINGS,
    shape=shape,
)
