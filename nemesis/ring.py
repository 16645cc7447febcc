"""A ring: every broker hears its two neighbours, so that no two brokers agree on which brokers are up.

Jepsen's *majorities ring* with five brokers. The leader, which is the controller too, has two brokers that stay as
neighbours; the absent brokers are opposite. Followers that stay do not hear each other either: only the leader's
neighbours follow it.
"""

from itertools import pairwise

from harness.schedules.placement import Placement
from nemesis import topology
from nemesis.script import Members, Topology

FEWEST, STAYING = 5, 3


def shape(placement: Members) -> Topology:
    """Return the ring: leader, a neighbour, the absent brokers, the other neighbour."""
    leader, neighbour, other = placement.staying
    return topology.groups(*pairwise((leader, neighbour, *placement.absent, other, leader)))


def why_unfit(placement: Placement) -> str | None:
    """Return why these brokers cannot stand in a ring."""
    if len(placement.brokers) < FEWEST or len(placement.staying) != STAYING:
        return f"a ring takes {FEWEST} brokers or more, of which {STAYING} stay: give --brokers 5 --absent 2, say"
    if placement.partitions > 1:
        return "one broker leads in a ring, the controller: give --partitions 1"
    return None


FAULT, SCRIPT = topology.declared(
    name="ring",
    summary="every broker hears its two neighbours only (needs root; five brokers or more)",
    leaving="close the ring, broker {broker} opposite",
    rejoining="open the ring to broker {broker}",
    shape=shape,
    why_unfit=why_unfit,
    soak_excluded="takes five brokers",
)
