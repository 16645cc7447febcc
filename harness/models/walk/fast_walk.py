"""Explore a `walkable.Space` breadth first, with the result of `exhaustive.explore`, but faster.

States are rows of numbers; the steps of many states are taken at once by compiled loops
(`harness.models.walk.kernels`), in the same order. The model is asked once for the steps of each control part, and once
for what an operation makes of a replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harness.models.walk import kernels
from harness.models.walk.exhaustive import Explored
from harness.models.walk.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.models.walk.kernels import Ints, Longs
    from harness.models.walk.walkable import Space, WalkState
    from harness.schedules.operations.operation import Operation

CHUNK: Final = 1 << 15
"""Rows at once."""
_MISSING: Final = 1 << 12
_FEWEST: Final = 1 << 14


def _empty_table(size: int) -> kernels.Table:
    return kernels.Table(np.full(size, kernels.EMPTY, np.int64), np.zeros(size, np.int32))


class _Results:
    """The results of operations, computed where they are missing."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute
        self._used = 0
        self.table = _empty_table(2 * _FEWEST)
        self.missing: Longs = np.empty(_MISSING, np.int64)

    def _make_room(self) -> None:
        """Have room for as many keys as may be missing."""
        former = self.table
        if 2 * (self._used + _MISSING) > former.keys.size:
            known = former.keys != kernels.EMPTY
            self.table = _empty_table(2 * former.keys.size)
            kernels.put(self.table, former.keys[known], former.values[known])

    def look_up(self, look: Callable[[int], Longs], begin: int, end: int) -> None:
        """Look at all rows until nothing is missing; ``look`` returns the row reached and how much is missing."""
        missing = 1
        while missing:
            missing, at = 0, begin
            while at < end:
                self._make_room()
                at, count = map(int, look(at))
                self._complete(count)
                missing += count

    def _complete(self, count: int) -> None:
        """Compute the values of the missing keys, which are pending."""
        keys = self.missing[:count].copy()
        kernels.put(self.table, keys, np.array([self._compute(int(key)) for key in keys], np.int32))
        self._used += count


class _Rows:
    """All states so far, each once, in the order in which they were reached."""

    def __init__(self, start: Sequence[int]) -> None:
        self.rows: Ints = np.zeros((_FEWEST, len(start)), np.int32)
        self.predecessors: Ints = np.full(_FEWEST, kernels.EMPTY, np.int32)
        self.index: Ints = np.full(4 * _FEWEST, kernels.EMPTY, np.int32)
        self.rows[0] = start
        self.count = 1
        kernels.index_rows(self.rows, 1, self.index)

    def make_room(self, more: int) -> None:
        """Have room for so many more states."""
        size = len(self.rows)
        while size < self.count + more:
            size *= 2
        if size > len(self.rows):
            added = size - len(self.rows)
            self.rows = np.concatenate([self.rows, np.zeros((added, self.rows.shape[1]), np.int32)])
            self.predecessors = np.concatenate([self.predecessors, np.zeros(added, np.int32)])
            self.index = np.full(4 * size, kernels.EMPTY, np.int32)
            kernels.index_rows(self.rows, self.count, self.index)

    def way_to(self, index: int) -> list[tuple[int, ...]]:
        """Return the rows after the start on the way to a row."""
        way = []
        while index:
            way.append(tuple(map(int, self.rows[index])))
            index = int(self.predecessors[index])
        return way[::-1]


def fast_walk(space: Space[Any], *, most_states: int, first_only: bool = False) -> Explored:
    """Explore a space as `harness.models.walk.exhaustive.explore` does.

    States that differ only by the names of brokers that may change places count as one (`Space.renamed`).
    """
    return _Walk(space).explore(most_states, first_only=first_only)


class _Walk:
    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._programs = Programs(space)
        self._rows = _Rows(self._programs.row(space.start))
        self._results = _Results(self._programs.result)

    def explore(self, most_states: int, *, first_only: bool) -> Explored:
        found, first = Explored(), dict[str, int]()
        rows, begin, end_of_level = self._rows, 0, 1
        while begin < rows.count:
            end = min(begin + CHUNK, end_of_level)
            views = self._inspect(begin, end, first)
            is_last = bool(first) and first_only
            if is_last:
                end = min(first.values())
                first = {name: index for name, index in first.items() if index == end}
                found.is_whole = False
            if end > begin:
                self._expand(begin, end, views, most_states, found)
            if is_last:
                break
            begin = end
            if begin == end_of_level and begin < rows.count:
                end_of_level = rows.count
                found.depth += 1
        found.states = rows.count
        found.wrong = {name: self._steps_to(index) for name, index in first.items()}
        return found

    def _inspect(self, begin: int, end: int, first: dict[str, int]) -> Ints:
        """Note the first row with each violation; return the rows' views."""
        wrong, views = np.zeros((2, end - begin), np.int32)

        def look(at: int) -> Longs:
            results, controls = self._results, self._programs.controls()
            places = slice(at - begin, None)
            reached: Longs = kernels.inspect(
                self._rows.rows, at, end, controls, results.table, results.missing, wrong[places], views[places]
            )
            return reached

        self._results.look_up(look, begin, end)
        for name, bit in self._programs.names.items():
            if name not in first and (places := np.flatnonzero((wrong >> bit) & 1)).size:
                first[name] = begin + int(places[0])
        return views

    def _expand(self, begin: int, end: int, views: Ints, most_states: int, found: Explored) -> None:
        rows, results = self._rows, self._results

        def look(at: int) -> Longs:
            # A step may lead to a control part for the first time.
            steps = self._programs.steps()
            reached: Longs = kernels.resolve(
                rows.rows, at, end, views[at - begin :], steps, results.table, results.missing
            )
            return reached

        results.look_up(look, begin, end)
        steps, views = self._programs.steps(), views[: end - begin]
        rows.make_room(int((steps.program[views + 1] - steps.program[views]).sum()))
        counted = kernels.expand(
            rows.rows, begin, end, views, steps, results.table, rows.count, most_states, rows.index, rows.predecessors
        )
        rows.count, transitions, ends, left_out = map(int, counted)
        found.transitions += transitions
        found.ends += ends
        found.is_whole = found.is_whole and not left_out

    def _steps_to(self, index: int) -> tuple[Operation, ...]:
        """Return the words of the steps to a row, each broker under its own name all the way."""
        state: WalkState = self._space.start
        steps: list[Operation] = []
        for row in self._rows.way_to(index):
            step, state = next(
                (step, after) for step, after in self._space.following(state) if self._programs.row(after) == row
            )
            steps.append(step)
        return tuple(steps)
