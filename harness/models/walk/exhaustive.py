"""Explore every interleaving of a small state space, breadth first: the first path to a violation is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from harness.schedules.operations.operation import Operation

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Explored:
    """The result. ``wrong``: by name of a violation, the steps of a shortest path to it.

    ``depth``: steps to the farthest state. ``ends``: states without a following state. ``is_whole``: every reachable
    state was visited; otherwise the exploration was ended early.
    """

    states: int = 0
    transitions: int = 0
    ends: int = 0
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
    steps_of: Callable[[Sequence[S]], tuple[Operation, ...]] | None = None,
) -> Explored:
    """Explore the state graph from a start, or ``most_states`` states of it.

    ``following`` gives the operations that are possible in a state, and the states that they lead to; a step that
    changes nothing is skipped. ``wrong`` gives the names of the violations in a state. A violation does not end the
    exploration, unless ``first_only``; the first path to each name is kept, which is a shortest one. States with the
    same ``key`` have the same futures, and count as one state. ``steps_of`` names the steps of a path through these
    states; by default, ``following`` names them.
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
        is_end = True
        for _, after in following(state):
            reached = key(after)
            if reached == here:
                continue
            is_end = False
            explored.transitions += 1
            if reached in predecessors:
                continue
            if explored.states >= most_states:
                explored.is_whole = False
                continue
            predecessors[reached] = state
            explored.states += 1
            ahead.append((after, explored.depth + 1))
        explored.ends += is_end
    for name, state in first.items():
        path = _path_to(state, predecessors, key)
        explored.wrong[name] = steps_of(path) if steps_of else _steps_of(path, following, key)
    return explored


def _path_to(state: S, predecessors: Mapping[Hashable, S | None], key: Callable[[S], Hashable]) -> list[S]:
    path = [state]
    while (before := predecessors[key(path[-1])]) is not None:
        path.append(before)
    return path[::-1]


def _steps_of(
    path: Sequence[S], following: Callable[[S], Iterable[tuple[Operation, S]]], key: Callable[[S], Hashable]
) -> tuple[Operation, ...]:
    return tuple(
        next(step for step, reached in following(before) if key(reached) == key(after))
        for before, after in pairwise(path)
    )


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
