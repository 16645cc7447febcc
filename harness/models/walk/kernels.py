"""The compiled loops of `harness.models.walk.fast_walk`: steps of many states at once, and the set of all states.

A state is a row of numbers: its control part, and its replicas. A program (`harness.models.walk.programs`) says what
the steps of a state make of the replicas, by operations on one or two numbers. The result of an operation is looked up
in a table; one that is not known yet is reported as missing, and computed by the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numba import int32, int64, types, uint64

from harness.broker_files.segments.jit import compiled, inlined

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
    """All programs. A view's steps are ``program[view]`` to ``program[view + 1]``, and a step's operations likewise.

    ``target``: the control part after each step. ``out[step, slot]``: the register of a replica, or -1 minus a
    constant. Of an operation: its code, and the registers of its one or two numbers (``right`` is -1 for one). Of each
    control part: the slots that are ``alike`` and may change places, the slot of the ``leader``, and the codes of
    operations on the leader's replica, ``own``, and on what that returns, ``normalize``, whose result replaces the
    control part.
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


# Helpers take arrays: tuples of arrays, inlined, cost several times as much as the rest of the loop.


@inlined
def _look_up(keys: Longs, values: Ints, key: int, missing: Longs, count: int) -> tuple[Any, Any]:
    """Return the value of a key, and how many keys are missing; a new one is marked as pending."""
    at = _place(keys, key)
    if keys[at] == EMPTY:
        keys[at], values[at] = key, PENDING
        missing[count] = key
        return int64(PENDING), count + 1
    return int64(values[at]), count


@compiled(int64[::1](_ROWS, int64, int64, _CONTROLS, _TABLE, _LONGS, _INTS, _INTS))
def inspect(  # noqa: PLR0917
    rows: Ints, begin: int, end: int, controls: Controls, table: Table, missing: Longs, wrong: Ints, views: Ints
) -> Any:
    """Find, for each row, what is wrong with its replicas in sync, and its view: all that its steps depend on.

    Fills ``wrong`` and ``views`` from `begin` on. Returns the row reached and how much is missing.
    """
    keys, values = table.keys, table.values
    judges, owns, in_sync, own_bits = controls.judge, controls.own, controls.in_sync, controls.own_bits
    result, count, row = np.empty(2, np.int64), 0, begin
    slots = rows.shape[1] - 1
    while row < end and count + 2 * slots + 1 < missing.size:
        control, found, view, known = rows[row, 0], int64(0), int64(0), True
        for slot in range(slots):
            replica = int64(rows[row, slot + 1])
            if (in_sync[control] >> slot) & 1:
                key = (int64(judges[control]) << CODE_OF_ONE) | replica
                value, count = _look_up(keys, values, key, missing, count)
                found |= value
            if own_bits:
                key = (int64(owns[control]) << CODE_OF_ONE) | replica
                value, count = _look_up(keys, values, key, missing, count)
                known = known and value != PENDING
                view = (view << own_bits) | value
        if known:
            key = OF_VIEW | (int64(control) << CODE_OF_ONE) | view
            value, count = _look_up(keys, values, key, missing, count)
            views[row - begin] = int32(value)
        wrong[row - begin] = int32(found)
        row += 1
    result[0], result[1] = row, count
    return result


@inlined
def _run(  # noqa: PLR0917
    begin: int, end: int, codes: Ints, left: Ints, right: Ints, keys: Longs, values: Ints, slots: int,
    registers: Longs, missing: Longs, count: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Run operations on the registers; return whether all results are known, and how many are missing."""
    register = slots
    for one in range(begin, end):
        a = registers[left[one]]
        if right[one] >= 0:
            b = registers[right[one]]
            key = OF_TWO | (int64(codes[one]) << CODE_OF_TWO) | (a << FIRST_OF_TWO) | b
        else:
            key = (int64(codes[one]) << CODE_OF_ONE) | a
        value, count = _look_up(keys, values, key, missing, count)
        if value == PENDING:
            return False, count
        registers[register] = value
        register += 1
    return True, count


@inlined
def _place_replicas(  # noqa: PLR0917
    registers: Longs, out: Ints, step: int, alike: Ints, control: int, after: Ints
) -> None:
    """Write the control part and the replicas after a step that was run; those that are alike in order."""
    slots = after.size - 1
    after[0] = control
    for slot in range(slots):
        source = out[step, slot]
        after[slot + 1] = int32(registers[source]) if source >= 0 else int32(-1 - source)
    for i in range(slots):
        for j in range(i + 1, slots):
            if alike[control, i] and alike[control, j] and after[i + 1] > after[j + 1]:
                after[i + 1], after[j + 1] = after[j + 1], after[i + 1]


@inlined
def _normalized(  # noqa: PLR0917
    after: Ints, leader: Ints, own: Ints, normalize: Ints, keys: Longs, values: Ints, missing: Longs, count: int
) -> tuple[Any, Any]:
    """Return the control part after the leader's report, or that this is pending, and how many keys are missing."""
    control = after[0]
    replica = int64(after[leader[control] + 1])
    value, count = _look_up(keys, values, (int64(own[control]) << CODE_OF_ONE) | replica, missing, count)
    if value != PENDING:
        key = (int64(normalize[control]) << CODE_OF_ONE) | value
        value, count = _look_up(keys, values, key, missing, count)
    return value, count


@compiled(int64[::1](_ROWS, int64, int64, _INTS, _STEPS, _TABLE, _LONGS))
def resolve(  # noqa: PLR0917
    rows: Ints, begin: int, end: int, views: Ints, steps: Steps, table: Table, missing: Longs
) -> Any:
    """Look up every result that the steps of the rows need; return the row reached and how many are missing.

    The result of an operation may be the argument of the next: repeat until nothing is missing. ``views`` has the views
    of the rows from `begin` on.
    """
    keys, values, program, first, own_bits = table.keys, table.values, steps.program, steps.first, steps.own_bits
    codes, left, right, target, out = steps.codes, steps.left, steps.right, steps.target, steps.out
    alike, leader, own, normalize = steps.alike, steps.leader, steps.own, steps.normalize
    result, count, row = np.empty(2, np.int64), 0, begin
    slots = rows.shape[1] - 1
    registers, after = np.empty(MOST_REGISTERS, np.int64), np.empty(slots + 1, np.int32)
    while row < end:
        view = views[row - begin]
        if count + program[view + 1] - program[view] >= missing.size:
            break
        for slot in range(slots):
            registers[slot] = rows[row, slot + 1]
        for step in range(program[view], program[view + 1]):
            known, count = _run(
                first[step], first[step + 1], codes, left, right, keys, values, slots, registers, missing, count
            )
            if known and own_bits:
                _place_replicas(registers, out, step, alike, target[step], after)
                _, count = _normalized(after, leader, own, normalize, keys, values, missing, count)
        row += 1
    result[0], result[1] = row, count
    return result


@inlined
def _is_same(rows: Ints, number: int, row: Ints) -> Any:
    same = True
    for column in range(row.size):
        same = same and rows[number, column] == row[column]
    return same


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
        if _is_same(rows, number, row):
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
    keys, values, program, first, own_bits = table.keys, table.values, steps.program, steps.first, steps.own_bits
    codes, left, right, target, out = steps.codes, steps.left, steps.right, steps.target, steps.out
    alike, leader, own, normalize = steps.alike, steps.leader, steps.own, steps.normalize
    slots = rows.shape[1] - 1
    registers, missing = np.empty(MOST_REGISTERS, np.int64), np.empty(1, np.int64)
    after = np.empty(slots + 1, np.int32)
    transitions, ends, left_out = 0, 0, 0
    for row in range(begin, end):
        view, is_end = views[row - begin], True
        for slot in range(slots):
            registers[slot] = rows[row, slot + 1]
        for step in range(program[view], program[view + 1]):
            _run(first[step], first[step + 1], codes, left, right, keys, values, slots, registers, missing, 0)
            _place_replicas(registers, out, step, alike, target[step], after)
            if own_bits:
                control, _ = _normalized(after, leader, own, normalize, keys, values, missing, 0)
                after[0] = int32(control)
            if _is_same(rows, row, after):
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
    return np.array([count, transitions, ends, left_out], np.int64)
