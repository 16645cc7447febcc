"""A link that works in one direction: the absent brokers hear all brokers, and no broker hears them.

No connection survives that, as acknowledgements are lost too; but packets that were sent to a broker before are still
delivered, and it keeps trying.
"""

from __future__ import annotations

from harness.schedules.placement import Members
from nemesis import topology


def shape(placement: Members) -> topology.Graph:
    """Return the complete graph without the links from the absent brokers."""
    graph = topology.everybody(placement.brokers)
    graph.remove_edges_from([link for link in graph.edges if link[0] in placement.absent])
    return graph


FAULT, SCRIPT = topology.declared(
    name="one-way",
    summary="the broker hears all brokers, and no broker hears it (needs root)",
    leaving="silence broker {broker}",
    rejoining="let broker {broker} be heard",
    shape=shape,
)
