"""Network topologies: who still hears whom while brokers are away.

A topology is a directed graph of the brokers: an edge from u to v says that what u sends reaches v. The absent
brokers are those without a controller that hears them and is heard by them, whatever else they still hear.
"""

# ruff: noqa: PLC0415  (importing networkx takes a fifth of a second, and most runs need no topology)

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from harness.runtimes.abilities import Firewalls
from nemesis import partition
from nemesis.fault import FIREWALL, Nemesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import networkx as nx

    from harness.schedules.placement import Placement
    from nemesis.fault import NemesisContext

    Graph: TypeAlias = nx.DiGraph[int]


def everybody(brokers: Iterable[int]) -> Graph:
    """Return the graph in which all of these hear each other."""
    import networkx as nx

    graph: Graph = nx.complete_graph(list(brokers), create_using=nx.DiGraph)
    return graph


def groups(*members: Iterable[int]) -> Graph:
    """Return the graph in which a broker hears those that share a group with it."""
    import networkx as nx

    graph: Graph = nx.compose_all([everybody(group) for group in members])
    return graph


def circle(brokers: Iterable[int]) -> Graph:
    """Return the graph in which a broker hears the one before it and the one after it."""
    import networkx as nx

    graph: Graph = nx.cycle_graph(list(brokers), create_using=nx.Graph).to_directed()
    return graph


def lost(topology: Graph) -> list[tuple[int, int]]:
    """Return the links (from, to) that a topology lacks."""
    import networkx as nx

    return sorted(nx.complement(topology).edges)


def fault(
    *,
    name: str,
    summary: str,
    leaving: str,
    returning: str,
    shape: Callable[[Placement], Graph],
    why_unfit: Callable[[Placement], str | None] = lambda _: None,
) -> Nemesis:
    """Return the fault that leaves the links of a topology, and no other, while brokers are away."""

    def inject(context: NemesisContext) -> None:
        context.ability(Firewalls).block(lost(shape(context.cluster.placement)))

    return Nemesis(
        name=name,
        summary=summary,
        leaving=leaving,
        returning=returning,
        inject=inject,
        heal=lambda context: context.ability(Firewalls).clear_links(),
        lives_on=True,
        needs=FIREWALL,
        broker_settings=partition.BROKER_SETTINGS,
        shape=shape,
        why_unfit=why_unfit,
    )
