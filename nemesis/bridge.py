"""Two halves that a single broker connects: it hears both, they do not hear each other.

Jepsen's *bridge*. The absent brokers are the half without the controller. The bridge leads nothing: a follower that
still hears its leader misses nothing, whatever its state is for the controller.
"""

from harness.schedules.placement import Placement
from nemesis import topology

FEWEST = 5


def why_unfit(placement: Placement) -> str | None:
    """Return why these brokers have no bridge."""
    if len(placement.brokers) < FEWEST:
        return f"a bridge between two halves takes {FEWEST} brokers: give --brokers {FEWEST} or more"
    if placement.partitions >= len(placement.staying):
        return f"the bridge would lead a partition: give --partitions {len(placement.staying) - 1} or fewer"
    return None


FAULT, SCRIPT = topology.declared(
    name="bridge",
    summary="two halves that one broker connects (needs root; five brokers or more)",
    leaving="leave broker {broker} the bridge",
    rejoining="let broker {broker} hear all brokers again",
    # The bridge is the last of the brokers that stay.
    shape=lambda members: topology.groups((*members.absent, members.staying[-1]), members.staying),
    why_unfit=why_unfit,
    soak_excluded="takes five brokers",
)
