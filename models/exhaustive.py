"""Every interleaving of a small world: breadth first, so that the first way to something wrong is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


class World(Protocol):
    """A state of something small, and what may happen next. No step changes the state that it is taken in."""

    def steps(self) -> Iterable[str]:
        """Return what may happen now, each in words that are unique among them; nothing where the world ends."""
        ...

    def after(self, step: str) -> Self:
        """Return the state that a step leads to."""
        ...

    def key(self) -> Hashable:
        """Return what tells this state from others: two states with one key have the same futures."""
        ...

    def wrong(self) -> Iterable[str]:
        """Return the names of what must never be and is so here."""
        ...


W = TypeVar("W", bound=World)


@dataclass
class Explored:
    """What was found. ``wrong``: by name the steps of a shortest way there. ``ends``: states without a next step.

    ``is_whole``: every state that can be reached was seen; otherwise the bound on their number was met.
    """

    states: int = 0
    transitions: int = 0
    ends: int = 0
    depth: int = 0
    is_whole: bool = True
    wrong: dict[str, tuple[str, ...]] = field(default_factory=dict)


def explore(start: W, *, most_states: int) -> Explored:
    """Walk the whole state graph of a world, or ``most_states`` of it.

    What is wrong in a state does not end the walk: of each name the first, and so a shortest, way is kept.
    """
    found = Explored(states=1)
    ways: dict[Hashable, tuple[Hashable, str] | None] = {start.key(): None}
    ahead: deque[tuple[W, Hashable, int]] = deque([(start, start.key(), 0)])
    while ahead:
        world, key, found.depth = ahead.popleft()
        for name in world.wrong():
            if name not in found.wrong:
                found.wrong[name] = _way(ways, key)
        is_end = True
        for step in world.steps():
            is_end = False
            found.transitions += 1
            following = world.after(step)
            reached = following.key()
            if reached in ways:
                continue
            if found.states >= most_states:
                found.is_whole = False
                continue
            ways[reached] = key, step
            found.states += 1
            ahead.append((following, reached, found.depth + 1))
        found.ends += is_end
    return found


def _way(ways: dict[Hashable, tuple[Hashable, str] | None], key: Hashable) -> tuple[str, ...]:
    steps: list[str] = []
    while (came := ways[key]) is not None:
        key, step = came
        steps.append(step)
    return tuple(reversed(steps))
