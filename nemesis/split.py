"""A minority and a majority: the absent brokers still hear each other, and nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis import topology

if TYPE_CHECKING:
    from harness.plan.placement import Placement
    from nemesis import Grounds


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


def leave(grounds: Grounds) -> None:
    """Split them."""
    topology.impose(grounds, shape(grounds.cluster.placement))
