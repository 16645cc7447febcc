"""Every interleaving of something small: breadth first, so that the first way to something wrong is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Explored:
    """What was found. ``wrong``: by name the steps of a shortest way there.

    ``depth``: steps to the farthest state. ``ends``: states from which nothing leads on.

    ``is_whole``: every state that can be reached was seen; otherwise the walk was ended before.
    """

    states: int = 0
    transitions: int = 0
    ends: int = 0
    depth: int = 0
    is_whole: bool = True
    wrong: dict[str, tuple[str, ...]] = field(default_factory=dict)


def explore(
    start: S,
    following: Callable[[S], Iterable[tuple[str, S]]],
    wrong: Callable[[S], Iterable[str]],
    *,
    most_states: int,
    first_only: bool = False,
    key: Callable[[S], Hashable] = lambda state: state,
) -> Explored:
    """Walk the whole state graph from a start, or ``most_states`` of it.

    ``following`` gives what may happen in a state, in words, and where it leads; a step that changes nothing is none.
    ``wrong`` gives the names of what must never be and is so in a state. That does not end the walk, unless
    ``first_only``: of each name the first way is kept, which is a shortest one. States with one ``key`` have the same
    futures, and are one.
    """
    found = Explored(states=1)
    came: dict[Hashable, S | None] = {key(start): None}
    ahead = deque([(start, 0)])
    first: dict[str, S] = {}
    while ahead:
        state, found.depth = ahead.popleft()
        here = key(state)
        for name in wrong(state):
            first.setdefault(name, state)
        if first and first_only:
            found.is_whole = False
            break
        is_end = True
        for _, after in following(state):
            reached = key(after)
            if reached == here:
                continue
            is_end = False
            found.transitions += 1
            if reached in came:
                continue
            if found.states >= most_states:
                found.is_whole = False
                continue
            came[reached] = state
            found.states += 1
            ahead.append((after, found.depth + 1))
        found.ends += is_end

    def way(state: S) -> tuple[str, ...]:
        steps: list[str] = []
        while (before := came[key(state)]) is not None:
            steps.append(next(step for step, after in following(before) if key(after) == key(state)))
            state = before
        return tuple(reversed(steps))

    found.wrong = {name: way(state) for name, state in first.items()}
    return found


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
