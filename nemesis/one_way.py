"""A link that works in one direction: the absent brokers hear all brokers, and no broker hears them.

No connection survives that, as acknowledgements are lost too; but packets that were sent to a broker before are still
delivered, and it keeps trying.
"""

from nemesis import topology

FAULT, SCRIPT = topology.declared(
    name="one-way",
    summary="the broker hears all brokers, and no broker hears it (needs root)",
    leaving="silence broker {broker}",
    rejoining="let broker {broker} be heard",
    shape=lambda members: {link for link in topology.groups(members.brokers) if link[0] not in members.absent},
)
