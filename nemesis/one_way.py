"""A link that works in one direction: the absent brokers hear everybody, and nobody hears them.

No connection survives that, as acknowledgements are lost too; but what was sent to a broker before is still
delivered, and it keeps trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import topology

if TYPE_CHECKING:
    from harness.schedules.placement import Placement


def shape(placement: Placement) -> topology.Graph:
    """Return everybody's graph without the links that lead away from the absent brokers."""
    graph = topology.everybody(placement.brokers)
    graph.remove_edges_from(
        [link for link in topology.everybody(placement.brokers).edges if link[0] in placement.absent]
    )
    return graph


NEMESIS = topology.fault(
    name="one-way",
    summary="the broker hears everybody, and nobody hears it (needs root)",
    leaving="silence broker {broker}",
    returning="let broker {broker} be heard",
    shape=shape,
)
