"""Network topologies: which brokers still hear each other during a fault.

The absent brokers are those without a controller that hears them and is heard by them, whatever other brokers they
still hear.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from typing import Any

from harness.runtimes.base import Firewalls
from nemesis import partition
from nemesis.fault import FIREWALL, ON_LINKS, BrokerState, Fault, FaultContext
from nemesis.script import Members, Script, Topology, script_of


def groups(*members: Iterable[int]) -> Topology:
    """Return the topology in which a broker hears the brokers that share a group with it."""
    return {link for group in members for link in permutations(group, 2)}


def lost(topology: Topology, brokers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the links (from, to) between brokers that a topology does not have, in order."""
    return sorted(groups(brokers) - topology)


def declared(
    *, name: str, summary: str, shape: Callable[[Members], Topology], soak_excluded: str = "", **more: Any
) -> tuple[Fault, Script]:
    """Return the fault that leaves the links of a topology, and no other, around its brokers, and its script.

    ``more``: arguments of `script_of`.
    """

    def inject(context: FaultContext) -> None:
        members = replace(context.cluster, absent=context.brokers)
        context.ability(Firewalls).block(lost(shape(members), members.brokers))

    fault = Fault(
        name=name,
        summary=summary,
        inject=inject,
        heal=lambda context: context.ability(Firewalls).clear_links(),
        needs=FIREWALL,
        broker_settings=partition.BROKER_SETTINGS,
        broker_state=BrokerState.OUT_OF_SYNC,
        alone_in=ON_LINKS,
        soak_excluded=soak_excluded,
    )
    return fault, script_of(fault, shape=shape, **more)
