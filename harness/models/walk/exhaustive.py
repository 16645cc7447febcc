"""Explore every interleaving of a small state space, breadth first: the first path to a violation is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.schedules.operations import Operation

S = TypeVar("S", bound=Hashable)
T = TypeVar("T")


@dataclass
class Explored:
    """The result. ``wrong``: by name of a violation, the steps of a shortest path to it.

    ``depth``: steps to the farthest state. ``is_whole``: every reachable state was visited.
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
    concrete: tuple[Any, Callable[[Any], Iterable[tuple[Operation, Any]]], Callable[[Any], Hashable]] | None = None,
) -> Explored:
    """Explore the state graph from a start, or ``most_states`` states of it.

    ``following`` gives the operations that are possible in a state, and the states that they lead to; a step that
    changes nothing is skipped. ``wrong`` gives the names of the violations in a state; the first ends the exploration
    if ``first_only``. ``concrete``: where these states stand for others, the start and the following states of those,
    and the function from a concrete state to its state here; they name the steps of a path.
    """
    explored = Explored(states=1)
    predecessors: dict[S, S | None] = {start: None}
    ahead = deque([(start, 0)])
    first: dict[str, S] = {}
    while ahead:
        state, explored.depth = ahead.popleft()
        for name in wrong(state):
            first.setdefault(name, state)
        if first and first_only:
            explored.is_whole = False
            break
        for _, after in following(state):
            if after == state:
                continue
            explored.transitions += 1
            if after in predecessors:
                continue
            if explored.states >= most_states:
                explored.is_whole = False
                continue
            predecessors[after] = state
            explored.states += 1
            ahead.append((after, explored.depth + 1))
    for name, state in first.items():
        path = [state]
        while (before := predecessors[path[-1]]) is not None:
            path.append(before)
        explored.wrong[name] = _steps_of(path[-2::-1], *(concrete or (start, following, lambda state: state)))
    return explored


def _steps_of(
    path: Iterable[Hashable],
    state: Any,
    following: Callable[[Any], Iterable[tuple[Operation, Any]]],
    key: Callable[[Any], Hashable],
) -> tuple[Operation, ...]:
    steps: list[Operation] = []
    for reached in path:
        step, state = next((step, after) for step, after in following(state) if key(after) == reached)
        steps.append(step)
    return tuple(steps)


class Numbered(Generic[T]):
    """Objects that are numbered in the order of their first use; objects with equal keys share one number."""

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

    def __getitem__(self, number: int) -> T:
        """Return the item of that number."""
        return self._objects[number]
