"""A link that works in one direction: the absent brokers hear all brokers, and no broker hears them.

No connection survives that, as acknowledgements are lost too; but packets that were sent to a broker before are still
delivered, and it keeps trying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import topology

if TYPE_CHECKING:
    from harness.schedules.placement import Members


def shape(placement: Members) -> topology.Topology:
    """Return all links but those from the absent brokers."""
    return frozenset(link for link in topology.groups(placement.brokers) if link[0] not in placement.absent)


FAULT, SCRIPT = topology.declared(
    name="one-way",
    summary="the broker hears all brokers, and no broker hears it (needs root)",
    leaving="silence broker {broker}",
    rejoining="let broker {broker} be heard",
    shape=shape,
)
