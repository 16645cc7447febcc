"""Explore every interleaving of a small state space, breadth first: the first path to a violation is a shortest one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from harness.schedules.operations.operation import Operation

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Explored:
    """The result. ``wrong``: by name of a violation, the steps of a shortest path to it.

    ``depth``: steps to the farthest state. ``ends``: states without a following state.

    ``is_whole``: every reachable state was visited; otherwise the exploration was ended early.
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
) -> Explored:
    """Explore the whole state graph from a start, or ``most_states`` states of it.

    ``following`` gives the operations that are possible in a state, and the states that they lead to; a step that
    changes nothing is skipped. ``wrong`` gives the names of the violations in a state. A violation does not end the
    exploration, unless ``first_only``; the first path to each name is kept, which is a shortest one. States with the
    same ``key`` have the same futures, and count as one state.
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

    def path_to(state: S) -> tuple[Operation, ...]:
        steps: list[Operation] = []
        while (before := predecessors[key(state)]) is not None:
            steps.append(next(step for step, after in following(before) if key(after) == key(state)))
            state = before
        return tuple(reversed(steps))

    explored.wrong = {name: path_to(state) for name, state in first.items()}
    return explored


class Numbered(Generic[T]):
    """Objects that are numbered in the order of their first use; objects with equal keys share one number.

    States that consist of numbers are small and quick to compare, and the effect of a step on a part of the state is
    computed only once.
    """

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        """Begin without any object."""
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
