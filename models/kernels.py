"""The compiled loops of `models.fast_walk`: steps of many states at once, and the set of all states.

A state is a row of numbers: its control part, and its replicas. A program (`models.programs`) says what the steps of a
state make of the replicas, by operations on one or two numbers. The result of an operation is looked up in a table; one
that is not known yet is reported as missing, and computed by the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numba import int32, int64, types, uint64

from harness.brokers.segments.jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Ints = NDArray[np.int32]

EMPTY: Final = -1
"""A place of a table without a key."""
PENDING: Final = -2
"""The value of a key that was reported as missing."""
OF_TWO, OF_VIEW = 1 << 62, 1 << 61
"""Mark the keys of operations on two numbers, and of views; all others are of operations on one number."""
CODE_OF_TWO, CODE_OF_ONE, FIRST_OF_TWO = 60, 32, 30
"""Bits below a code, and below the first of two numbers."""
MOST_REGISTERS: Final = 64


class Table(NamedTuple):
    """The results of operations, by key: places by a hash of the key."""

    keys: Longs
    values: Ints


class Controls(NamedTuple):
    """Of each control part: codes of operations on a replica, ``judge`` and ``own``, and the slots in sync, as bits.

    ``own_bits``: how many bits each replica's own offsets have in a view; 0 where steps do not depend on them.
    """

    judge: Ints
    in_sync: Ints
    own: Ints
    own_bits: int


class Steps(NamedTuple):
    """All programs. Steps of a view are ``program[view]`` to ``program[view + 1]``, a step's operations likewise ``first``.

    ``target``: the control part after each step. ``out[step, slot]``: the register of a replica, or -1 minus a constant.
    Of an operation: its code, and the registers of its one or two numbers (``right`` is -1 for one). Of each control part:
    the slots that are ``alike`` and may change places, the slot of the ``leader``, and the codes of two operations: on
    the leader's replica, ``own``, and on what that returns, ``normalize``, whose result replaces the control part.
    """

    program: Ints
    target: Ints
    out: Ints
    alike: Ints
    first: Ints
    codes: Ints
    left: Ints
    right: Ints
    leader: Ints
    own: Ints
    normalize: Ints
    own_bits: int


_LONGS, _INTS, _ROWS = int64[::1], int32[::1], int32[:, ::1]
_TABLE = types.NamedTuple((_LONGS, _INTS), Table)
_CONTROLS = types.NamedTuple((_INTS, _INTS, _INTS, int64), Controls)
_STEPS = types.NamedTuple((_INTS, _INTS, _ROWS, _ROWS, *[_INTS] * 7, int64), Steps)


@inlined
def _place(keys: Longs, key: int) -> Any:
    """Return the place of a key, or the empty place where it belongs."""
    mask = uint64(keys.size - 1)
    mixed = uint64(key) * uint64(0x9E3779B97F4A7C15)
    at = (mixed ^ (mixed >> uint64(29))) & mask
    while keys[int64(at)] != key and keys[int64(at)] != EMPTY:
        at = (at + uint64(1)) & mask
    return int64(at)


@compiled(types.void(_TABLE, _LONGS, _INTS))
def put(table: Table, keys: Longs, values: Ints) -> None:
    """Set the values of keys in a table with room for them."""
    for i in range(keys.size):
        at = _place(table.keys, keys[i])
        table.keys[at], table.values[at] = keys[i], values[i]


@inlined
def _look_up(table: Table, key: int, missing: Longs, count: int) -> tuple[Any, Any]:
    """Return the value of a key, and how many keys are missing; a new one is marked as pending."""
    at = _place(table.keys, key)
    if table.keys[at] == EMPTY:
        table.keys[at], table.values[at] = key, PENDING
        missing[count] = key
        return int64(PENDING), count + 1
    return int64(table.values[at]), count


@compiled(int64[::1](_ROWS, int64, int64, _CONTROLS, _TABLE, _LONGS, _INTS, _INTS))
def inspect(  # noqa: PLR0917
    rows: Ints, begin: int, end: int, controls: Controls, table: Table, missing: Longs, wrong: Ints, views: Ints
) -> Any:
    """Find, for each row, what is wrong with its replicas in sync, and its view: all that its steps depend on.

    Fills ``wrong`` and ``views`` from `begin` on. Returns the row reached and how much is missing.
    """
    result, count, row = np.empty(2, np.int64), 0, begin
    slots = rows.shape[1] - 1
    while row < end and count + 2 * slots + 1 < missing.size:
        control, found, view, known = rows[row, 0], int64(0), int64(0), True
        judge, own = int64(controls.judge[control]), int64(controls.own[control])
        for slot in range(slots):
            replica = int64(rows[row, slot + 1])
            if (controls.in_sync[control] >> slot) & 1:
                value, count = _look_up(table, (judge << CODE_OF_ONE) | replica, missing, count)
                found |= value
            if controls.own_bits:
                value, count = _look_up(table, (own << CODE_OF_ONE) | replica, missing, count)
                known = known and value != PENDING
                view = (view << controls.own_bits) | value
        if known:
            value, count = _look_up(table, OF_VIEW | (int64(control) << CODE_OF_ONE) | view, missing, count)
            views[row - begin] = int32(value)
        wrong[row - begin] = int32(found)
        row += 1
    result[0], result[1] = row, count
    return result


@inlined
def _run(step: int, steps: Steps, table: Table, registers: Longs, missing: Longs, count: int) -> tuple[Any, Any]:
    """Run the operations of a step on the registers; return whether all results are known, and how many are missing."""
    register = steps.out.shape[1]
    for one in range(steps.first[step], steps.first[step + 1]):
        a = registers[steps.left[one]]
        if steps.right[one] >= 0:
            code = OF_TWO | (int64(steps.codes[one]) << CODE_OF_TWO)
            value, count = _look_up(table, code | (a << FIRST_OF_TWO) | registers[steps.right[one]], missing, count)
        else:
            value, count = _look_up(table, (int64(steps.codes[one]) << CODE_OF_ONE) | a, missing, count)
        if value == PENDING:
            return False, count
        registers[register] = value
        register += 1
    return True, count


@inlined
def _finish(  # noqa: PLR0917
    step: int, steps: Steps, table: Table, registers: Longs, after: Ints, missing: Longs, count: int
) -> tuple[Any, Any]:
    """Write the row after a step that was run; return whether it is known, and how many keys are missing."""
    slots = after.size - 1
    control = steps.target[step]
    after[0] = control
    for slot in range(slots):
        source = steps.out[step, slot]
        after[slot + 1] = int32(registers[source]) if source >= 0 else int32(-1 - source)
    for i in range(slots):
        for j in range(i + 1, slots):
            if steps.alike[control, i] and steps.alike[control, j] and after[i + 1] > after[j + 1]:
                after[i + 1], after[j + 1] = after[j + 1], after[i + 1]
    if steps.own_bits:
        leader = int64(after[steps.leader[control] + 1])
        value, count = _look_up(table, (int64(steps.own[control]) << CODE_OF_ONE) | leader, missing, count)
        if value == PENDING:
            return False, count
        value, count = _look_up(table, (int64(steps.normalize[control]) << CODE_OF_ONE) | value, missing, count)
        if value == PENDING:
            return False, count
        after[0] = int32(value)
    return True, count


@compiled(int64[::1](_ROWS, int64, int64, _INTS, _STEPS, _TABLE, _LONGS))
def resolve(  # noqa: PLR0917
    rows: Ints, begin: int, end: int, views: Ints, steps: Steps, table: Table, missing: Longs
) -> Any:
    """Look up every result that the steps of the rows need; return the row reached and how many are missing.

    The result of an operation may be the argument of the next: repeat until nothing is missing. ``views`` has the views
    of the rows from `begin` on.
    """
    result, count, row = np.empty(2, np.int64), 0, begin
    slots = rows.shape[1] - 1
    registers, after = np.empty(MOST_REGISTERS, np.int64), np.empty(slots + 1, np.int32)
    while row < end:
        view = views[row - begin]
        if count + steps.program[view + 1] - steps.program[view] >= missing.size:
            break
        for slot in range(slots):
            registers[slot] = rows[row, slot + 1]
        for step in range(steps.program[view], steps.program[view + 1]):
            known, count = _run(step, steps, table, registers, missing, count)
            if known and steps.own_bits:
                _, count = _finish(step, steps, table, registers, after, missing, count)
        row += 1
    result[0], result[1] = row, count
    return result


@inlined
def _place_of_row(rows: Ints, index: Ints, row: Ints) -> Any:
    """Return the place of a row in the index of all rows, or the empty place where it belongs."""
    mask, mixed = uint64(index.size - 1), uint64(0)
    for column in range(row.size):
        mixed = (mixed ^ uint64(row[column])) * uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> uint64(32)
    at = mixed & mask
    while True:
        number = index[int64(at)]
        if number == EMPTY:
            return int64(at)
        same = True
        for column in range(row.size):
            if rows[number, column] != row[column]:
                same = False
                break
        if same:
            return int64(at)
        at = (at + uint64(1)) & mask


@compiled(types.void(_ROWS, int64, _INTS))
def index_rows(rows: Ints, count: int, index: Ints) -> None:
    """Enter so many rows into an empty index with room for them."""
    for number in range(count):
        index[_place_of_row(rows, index, rows[number])] = int32(number)


@compiled(int64[::1](_ROWS, int64, int64, _INTS, _STEPS, _TABLE, int64, int64, _INTS, _INTS))
def expand(  # noqa: PLR0917
    rows: Ints, begin: int, end: int, views: Ints, steps: Steps, table: Table, count: int, most: int, index: Ints,
    predecessors: Ints,
) -> Any:  # fmt: skip
    """Append the states after those of the rows to ``count`` rows, each once and in order; ``most`` altogether.

    Returns the number of rows, of transitions, of rows without a following state, and 1 where states were left out.
    """
    slots = rows.shape[1] - 1
    registers, missing = np.empty(MOST_REGISTERS, np.int64), np.empty(1, np.int64)
    after = np.empty(slots + 1, np.int32)
    transitions, ends, left_out = int64(0), int64(0), int64(0)
    for row in range(begin, end):
        view, is_end = views[row - begin], True
        for slot in range(slots):
            registers[slot] = rows[row, slot + 1]
        for step in range(steps.program[view], steps.program[view + 1]):
            _run(step, steps, table, registers, missing, 0)
            _finish(step, steps, table, registers, after, missing, 0)
            same = True
            for column in range(slots + 1):
                if after[column] != rows[row, column]:
                    same = False
                    break
            if same:
                continue
            is_end = False
            transitions += 1
            at = _place_of_row(rows, index, after)
            if index[at] != EMPTY:
                continue
            if count >= most:
                left_out = 1
                continue
            index[at] = int32(count)
            for column in range(slots + 1):
                rows[count, column] = after[column]
            predecessors[count] = int32(row)
            count += 1
        ends += is_end
    result = np.empty(4, np.int64)
    result[0], result[1], result[2], result[3] = count, transitions, ends, left_out
    return result
