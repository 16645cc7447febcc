"""Walks of small spaces state by state, and the results of walks in words."""

from typing import Any

from harness.models.faults.space import FaultSpace
from harness.models.walk.exhaustive import Explored, explore
from harness.models.walk.state_space import StateSpace

PLENTY = 2_000_000


def by_state(space: StateSpace | FaultSpace, wrong: Any = None, **how: Any) -> Explored:
    """Walk without rows. ``wrong``: the violations in a state, unless they are those of the space."""
    following: Any = space.following
    return explore(space.start, following, wrong or space.wrong, **{"most_states": PLENTY, **how})


def ways(explored: Explored) -> dict[str, str]:
    """Return the steps to each violation."""
    return {str(name): "; ".join(map(str, steps)) for name, steps in explored.wrong.items()}


def lengths(explored: Explored) -> dict[str, int]:
    """Return the number of steps to each violation."""
    return {str(name): len(steps) for name, steps in explored.wrong.items()}
