"""A minority and a majority: the absent brokers still hear each other, and nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import partition, topology
from nemesis.fault import FIREWALL, Nemesis

if TYPE_CHECKING:
    from harness.plan.placement import Placement
    from nemesis.fault import NemesisContext


def shape(placement: Placement) -> topology.Graph:
    """Return two graphs without a link between them."""
    return topology.groups(placement.absent, placement.staying)


def why_unfit(placement: Placement) -> str | None:
    """Return why these brokers cannot be split so."""
    if len(placement.absent) < 2:  # noqa: PLR2004  (one alone hears nobody)
        return "a minority of one is what --nemesis partition makes: give --absent 2 or more"
    if len(placement.absent) >= len(placement.staying):
        return f"{len(placement.absent)} of {len(placement.brokers)} brokers are no minority: give fewer --absent"
    return None


def inject(context: NemesisContext) -> None:
    """Split them."""
    topology.impose(context, shape(context.cluster.placement))


NEMESIS = Nemesis(
    name="split",
    summary="a minority that hears itself, and a majority (needs root; two absent brokers or more)",
    leaving="split off broker {broker}",
    returning="join broker {broker} to the others",
    inject=inject,
    heal=topology.lift,
    lives_on=True,
    needs=FIREWALL,
    broker_settings=partition.BROKER_SETTINGS,
    shape=shape,
    why_unfit=why_unfit,
)
