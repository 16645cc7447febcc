"""Network topologies: which brokers still hear each other during a fault.

A topology is a directed graph of the brokers: an edge from u to v says that messages of u reach v. The absent brokers
are those without a controller that hears them and is heard by them, whatever other brokers they still hear.
"""

# ruff: noqa: PLC0415  (importing networkx takes a fifth of a second, and most runs need no topology)

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from harness.runtimes.base import Firewalls
from harness.schedules.placement import Members, Placement
from nemesis import partition
from nemesis.fault import FIREWALL, ON_LINKS, BrokerState, Fault, FaultContext
from nemesis.script import Script, script_of

if TYPE_CHECKING:
    import networkx as nx

    Graph: TypeAlias = nx.DiGraph[int]


def everybody(brokers: Iterable[int]) -> Graph:
    """Return the graph in which all of these brokers hear each other."""
    import networkx as nx

    graph: Graph = nx.complete_graph(list(brokers), create_using=nx.DiGraph)
    return graph


def groups(*members: Iterable[int]) -> Graph:
    """Return the graph in which a broker hears the brokers that share a group with it."""
    import networkx as nx

    graph: Graph = nx.compose_all([everybody(group) for group in members])
    return graph


def circle(brokers: Iterable[int]) -> Graph:
    """Return the graph in which a broker hears the broker before it and the broker after it."""
    import networkx as nx

    graph: Graph = nx.cycle_graph(list(brokers), create_using=nx.Graph).to_directed()
    return graph


def lost(topology: Graph) -> list[tuple[int, int]]:
    """Return the links (from, to) that a topology does not have."""
    import networkx as nx

    return sorted(nx.complement(topology).edges)


def declared(
    *,
    name: str,
    summary: str,
    leaving: str,
    rejoining: str,
    shape: Callable[[Members], Graph],
    why_unfit: Callable[[Placement], str | None] = lambda _: None,
    soak_excluded: str = "",
) -> tuple[Fault, Script]:
    """Return the fault that leaves the links of a topology, and no other, around its brokers, and its script."""

    def inject(context: FaultContext) -> None:
        context.ability(Firewalls).block(lost(shape(replace(context.cluster, absent=context.brokers))))

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
