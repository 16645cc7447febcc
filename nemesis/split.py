"""A minority and a majority: the absent brokers still hear each other, and no other broker."""

from harness.schedules.placement import Placement
from nemesis import topology


def why_unfit(placement: Placement) -> str | None:
    """Return why these brokers cannot be split in this way."""
    if len(placement.absent) < 2:  # noqa: PLR2004  (one alone hears nobody)
        return "a minority of one is what --nemesis partition makes: give --absent 2 or more"
    if len(placement.absent) >= len(placement.staying):
        return f"{len(placement.absent)} of {len(placement.brokers)} brokers are not a minority: give fewer --absent"
    return None


FAULT, SCRIPT = topology.declared(
    name="split",
    summary="a minority that hears itself, and a majority (needs root; two absent brokers or more)",
    leaving="split off broker {broker}",
    rejoining="join broker {broker} to the others",
    shape=lambda members: topology.groups(members.absent, members.staying),
    why_unfit=why_unfit,
    soak_excluded="takes two brokers out at once",
)
