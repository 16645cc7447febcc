"""Explore every interleaving of a small state space, breadth first: the first path to a violation is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.schedules.operations import Operation

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Explored:
    """The result. ``wrong``: by name of a violation, the steps of a shortest path to it.

    ``depth``: steps to the farthest state. ``is_whole``: every reachable state was visited; otherwise the exploration
    was ended early.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    is_whole: bool = True
    wrong: dict[str, tuple[Operation, ...]] = field(default_factory=dict)


def explore(
    start: S,
    following: Callable[[S], Iterable[tuple[Operation, S]]],
    wrong: Callable[[S], Iterable[str]],
    *,
    most_states: int,
    first_only: bool = False,
    key: Callable[[S], Hashable] = lambda state: state,
    concrete: tuple[Any, Callable[[Any], Iterable[tuple[Operation, Any]]], Callable[[Any], Hashable]] | None = None,
) -> Explored:
    """Explore the state graph from a start, or ``most_states`` states of it.

    ``following`` gives the operations that are possible in a state, and the states that they lead to; a step that
    changes nothing is skipped. ``wrong`` gives the names of the violations in a state. A violation does not end the
    exploration, unless ``first_only``; the first path to each name is kept, which is a shortest one. States with the
    same ``key`` have the same futures, and count as one state. ``concrete``: start, following states and key of
    concrete states, where these states stand for others; they name the steps of a path.
    """
    explored = Explored(states=1)
    predecessors: dict[Hashable, S | None] = {key(start): None}
    ahead = deque([(start, 0)])
    first: dict[str, S] = {}
    while ahead:
        state, explored.depth = ahead.popleft()
        here = key(state)
        for name in wrong(state):
            first.setdefault(name, state)
        if first and first_only:
            explored.is_whole = False
            break
        for _, after in following(state):
            reached = key(after)
            if reached == here:
                continue
            explored.transitions += 1
            if reached in predecessors:
                continue
            if explored.states >= most_states:
                explored.is_whole = False
                continue
            predecessors[reached] = state
            explored.states += 1
            ahead.append((after, explored.depth + 1))
    for name, state in first.items():
        path = [key(state)]
        while (before := predecessors[path[-1]]) is not None:
            path.append(key(before))
        explored.wrong[name] = _steps_of(path[::-1], *(concrete or (start, following, key)))
    return explored


def _steps_of(
    path: Sequence[Hashable],
    state: S,
    following: Callable[[S], Iterable[tuple[Operation, S]]],
    key: Callable[[S], Hashable],
) -> tuple[Operation, ...]:
    steps: list[Operation] = []
    for reached in path[1:]:
        step, state = next((step, after) for step, after in following(state) if key(after) == reached)
        steps.append(step)
    return tuple(steps)


class Numbered(Generic[T]):
    """Objects that are numbered in the order of their first use; objects with equal keys share one number.

    States that consist of numbers are small and quick to compare, and the effect of a step on a part of the state is
    computed only once.
    """

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._numbers: dict[Hashable, int] = {}
        self._objects: list[T] = []

    def number(self, item: T) -> int:
        """Return the number of an object; a new number if its key is new."""
        number = self._numbers.setdefault(self._key(item), len(self._objects))
        if number == len(self._objects):
            self._objects.append(item)
        return number

    def __len__(self) -> int:
        """Return how many objects have a number."""
        return len(self._objects)

    def __getitem__(self, number: int) -> T:
        """Return the item of that number."""
        return self._objects[number]
