"""Network topologies: which brokers still hear each other during a fault.

A topology is the set of its links: (u, v) says that messages of broker u reach broker v. The absent brokers
are those without a controller that hears them and is heard by them, whatever other brokers they still hear.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

from harness.runtimes.base import Firewalls
from nemesis import partition
from nemesis.fault import FIREWALL, ON_LINKS, BrokerState, Fault, FaultContext
from nemesis.script import Script, script_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.schedules.placement import Members, Placement

Topology: TypeAlias = frozenset[tuple[int, int]]


def groups(*members: Iterable[int]) -> Topology:
    """Return the topology in which a broker hears the brokers that share a group with it."""
    return frozenset(link for group in members for link in permutations(group, 2))


def circle(brokers: Sequence[int]) -> Topology:
    """Return the topology in which a broker hears the broker before it and the broker after it."""
    neighbours = zip(brokers, (*brokers[1:], brokers[0]), strict=True)
    return groups(*neighbours)


def lost(topology: Topology, brokers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the links (from, to) between brokers that a topology does not have."""
    return sorted(groups(brokers) - topology)


def declared(
    *,
    name: str,
    summary: str,
    leaving: str,
    rejoining: str,
    shape: Callable[[Members], Topology],
    why_unfit: Callable[[Placement], str | None] = lambda _: None,
    soak_excluded: str = "",
) -> tuple[Fault, Script]:
    """Return the fault that leaves the links of a topology, and no other, around its brokers, and its script."""

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
    return fault, script_of(fault, leaving=leaving, rejoining=rejoining, shape=shape, why_unfit=why_unfit)
