"""Every interleaving of something small: breadth first, so that the first way to something wrong is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

S = TypeVar("S", bound="Hashable")
T = TypeVar("T")


@dataclass
class Explored:
    """What was found. ``wrong``: by name the steps of a shortest way there. ``depth``: steps to the farthest state.

    ``is_whole``: every state that can be reached was seen; otherwise the bound on their number was met.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    is_whole: bool = True
    wrong: dict[str, tuple[str, ...]] = field(default_factory=dict)


def explore(
    start: S,
    following: Callable[[S], Iterable[tuple[str, S]]],
    wrong: Callable[[S], Iterable[str]],
    *,
    most_states: int,
) -> Explored:
    """Walk the whole state graph from a start, or ``most_states`` of it.

    ``following`` gives what may happen in a state, in words, and where it leads; a step that changes nothing is none.
    ``wrong`` gives the names of what must never be and is so in a state. That does not end the walk: of each name the
    first way is kept, which is a shortest one.
    """
    found = Explored(states=1)
    came: dict[S, S | None] = {start: None}
    ahead = deque([(start, 0)])
    first: dict[str, S] = {}
    while ahead:
        state, found.depth = ahead.popleft()
        for name in wrong(state):
            first.setdefault(name, state)
        for _, reached in following(state):
            if reached == state:
                continue
            found.transitions += 1
            if reached in came:
                continue
            if found.states >= most_states:
                found.is_whole = False
                continue
            came[reached] = state
            found.states += 1
            ahead.append((reached, found.depth + 1))
    found.wrong = {name: _way(state, came, following) for name, state in first.items()}
    return found


def _way(end: S, came: dict[S, S | None], following: Callable[[S], Iterable[tuple[str, S]]]) -> tuple[str, ...]:
    steps: list[str] = []
    state = end
    while (before := came[state]) is not None:
        steps.append(next(step for step, reached in following(before) if reached == state))
        state = before
    return tuple(reversed(steps))


class Numbered(Generic[T]):
    """Things that are numbered as they are met: equal ones, by what their key tells, are one and have one number.

    States that are made of numbers are small and quick to compare, and what becomes of a part needs to be worked out
    only once.
    """

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        """Begin with nothing."""
        self._key = key
        self._numbers: dict[Hashable, int] = {}
        self._things: list[T] = []

    def number(self, thing: T) -> int:
        """Return the number of a thing, a new one for one that was not met."""
        number = self._numbers.setdefault(self._key(thing), len(self._things))
        if number == len(self._things):
            self._things.append(thing)
        return number

    def __getitem__(self, number: int) -> T:
        """Return the thing of that number."""
        return self._things[number]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._things)
