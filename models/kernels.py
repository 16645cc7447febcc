"""The compiled loops of `models.fast_walk`: steps of many states at once, and the set of all states.

A state is a row of numbers: its control part, and its replicas. A program (`models.programs`) says what the steps of a
control part make of the replicas, by operations on one or two of them. What an operation makes of a replica is looked up in
a table; a result that is not known yet is reported as missing, and computed by the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

_KEYS, _VALUES, _ROWS = int64[::1], int32[::1], int32[:, ::1]
_INTS = int32[::1]


@inlined
def _place(keys: Longs, key: int) -> Any:
    """Return the place of a key, or the empty place where it belongs."""
    mask = uint64(keys.size - 1)
    mixed = uint64(key) * uint64(0x9E3779B97F4A7C15)
    at = (mixed ^ (mixed >> uint64(29))) & mask
    while keys[int64(at)] != key and keys[int64(at)] != EMPTY:
        at = (at + uint64(1)) & mask
    return int64(at)


@compiled(types.void(_KEYS, _VALUES, _KEYS, _VALUES))
def put(keys: Longs, values: Ints, new_keys: Longs, new_values: Ints) -> None:
    """Set the values of keys in a table with room for them."""
    for i in range(new_keys.size):
        at = _place(keys, new_keys[i])
        keys[at], values[at] = new_keys[i], new_values[i]


@inlined
def _look_up(keys: Longs, values: Ints, key: int, missing: Longs, count: int) -> tuple[Any, Any]:
    """Return the value of a key, and how many keys are missing; a new one is marked as pending."""
    at = _place(keys, key)
    if keys[at] == EMPTY:
        keys[at], values[at] = key, PENDING
        missing[count] = key
        return int64(PENDING), count + 1
    return int64(values[at]), count


@compiled(int64[::1](_ROWS, int64, int64, _INTS, _INTS, _INTS, int64, _KEYS, _VALUES, _KEYS, _VALUES, _VALUES))
def inspect(
    rows: Ints, begin: int, end: int, judge: Ints, in_sync: Ints, own: Ints, own_bits: int, keys: Longs, values: Ints,
    missing: Longs, wrong: Ints, views: Ints,
) -> Any:  # fmt: skip
    """Find, for each row, what is wrong with its replicas in sync, and its view: all that its steps depend on.

    Of a control part, ``judge`` and ``own`` are the codes of these operations on a replica, and ``in_sync`` is a set of
    slots, as bits. A view has the control part and each replica's own offsets, of so many bits; with none, not the offsets.
    Fills ``wrong`` and ``views`` from `begin` on; returns the row reached and how much is missing.
    """
    result, count, row = np.empty(2, np.int64), 0, begin
    slots = rows.shape[1] - 1
    while row < end and count + 2 * slots + 1 < missing.size:
        control, found, view, known = rows[row, 0], int64(0), int64(0), True
        for slot in range(slots):
            replica = int64(rows[row, slot + 1])
            if (in_sync[control] >> slot) & 1:
                value, count = _look_up(keys, values, (int64(judge[control]) << CODE_OF_ONE) | replica, missing, count)
                found |= value
            if own_bits:
                value, count = _look_up(keys, values, (int64(own[control]) << CODE_OF_ONE) | replica, missing, count)
                known = known and value != PENDING
                view = (view << own_bits) | value
        if known:
            key = OF_VIEW | (int64(control) << CODE_OF_ONE) | view
            view, count = _look_up(keys, values, key, missing, count)
            views[row - begin] = int32(view)
        wrong[row - begin] = int32(found)
        row += 1
    result[0], result[1] = row, count
    return result


@inlined
def _run(step: int, first: Ints, codes: Ints, left: Ints, right: Ints, keys: Longs, values: Ints, registers: Longs,
         slots: int, missing: Longs, count: int) -> tuple[Any, Any]:  # fmt: skip
    """Run the operations of a step on the registers; return whether all results are known, and how many are missing."""
    register = slots
    for one in range(first[step], first[step + 1]):
        a, b = registers[left[one]], int64(0)
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
def _sort_alike(row: Ints, alike: Ints) -> None:
    """Sort the replicas of the brokers that are alike."""
    for i in range(alike.size):
        for j in range(i + 1, alike.size):
            if alike[i] and alike[j] and row[i + 1] > row[j + 1]:
                row[i + 1], row[j + 1] = row[j + 1], row[i + 1]


@inlined
def _place_of_row(rows: Ints, table: Ints, row: Ints) -> Any:
    """Return the place of a row in the table of all rows, or the empty place where it belongs."""
    mask, mixed = uint64(table.size - 1), uint64(0)
    for column in range(row.size):
        mixed = (mixed ^ uint64(row[column])) * uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> uint64(32)
    at = mixed & mask
    while True:
        index = table[int64(at)]
        if index == EMPTY:
            return int64(at)
        same = True
        for column in range(row.size):
            if rows[index, column] != row[column]:
                same = False
                break
        if same:
            return int64(at)
        at = (at + uint64(1)) & mask


@compiled(types.void(_ROWS, int64, int64, _INTS))
def index_rows(rows: Ints, begin: int, end: int, table: Ints) -> None:
    """Enter rows into a table with room for them."""
    for index in range(begin, end):
        table[_place_of_row(rows, table, rows[index])] = int32(index)


@inlined
def _finish(step: int, target: Ints, out: Ints, alike: Ints, leader: Ints, own: Ints, normalize: Ints, own_bits: int,
            keys: Longs, values: Ints, registers: Longs, after: Ints, missing: Longs, count: int) -> tuple[Any, Any]:  # fmt: skip
    """Write the row after a step; return whether it is known, and how many keys are missing."""
    slots = after.size - 1
    control = target[step]
    for slot in range(slots):
        source = out[step, slot]
        after[slot + 1] = int32(registers[source]) if source >= 0 else int32(-1 - source)
    _sort_alike(after, alike[control])
    after[0] = control
    if own_bits:
        key = (int64(own[control]) << CODE_OF_ONE) | int64(after[leader[control] + 1])
        value, count = _look_up(keys, values, key, missing, count)
        if value == PENDING:
            return False, count
        value, count = _look_up(keys, values, (int64(normalize[control]) << CODE_OF_ONE) | value, missing, count)
        if value == PENDING:
            return False, count
        after[0] = int32(value)
    return True, count


_STEPS = (_INTS, _INTS, _ROWS, _ROWS, _INTS, _INTS, _INTS, _INTS, _INTS, _INTS, _INTS, int64)
"""Types of `Steps`."""


@compiled(int64[::1](_ROWS, int64, int64, _INTS, *_STEPS, _KEYS, _VALUES, _KEYS))
def resolve(
    rows: Ints, begin: int, end: int, views: Ints, program: Ints, target: Ints, out: Ints, alike: Ints, first: Ints,
    codes: Ints, left: Ints, right: Ints, leader: Ints, own: Ints, normalize: Ints, own_bits: int,
    keys: Longs, values: Ints, missing: Longs,
) -> Any:  # fmt: skip
    """Look up every result that the steps of the rows need; return the row reached and how many are missing.

    The result of an operation may be the argument of the next: repeat until nothing is missing. ``views`` has the views of
    the rows from `begin` on. Steps of a view are ``program[view]`` to ``program[view + 1]``, operations of a step
    ``first[step]`` to ``first[step + 1]``. ``target[step]`` is the control part after a step, and ``out[step, slot]`` the
    register of a replica, or -1 minus a constant. Of a control part, ``alike`` has the slots that may change places, and
    ``leader`` is a slot; ``normalize`` is the code of an operation on the leader's own offsets, which returns another one.
    """
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
            known, count = _run(step, first, codes, left, right, keys, values, registers, slots, missing, count)
            if known and own_bits:
                _, count = _finish(
                    step, target, out, alike, leader, own, normalize, own_bits, keys, values, registers, after, missing, count
                )
        row += 1
    result[0], result[1] = row, count
    return result


@compiled(int64[::1](_ROWS, int64, int64, _INTS, *_STEPS, _KEYS, _VALUES, int64, int64, _INTS, _INTS))
def expand(
    rows: Ints, begin: int, end: int, views: Ints, program: Ints, target: Ints, out: Ints, alike: Ints, first: Ints,
    codes: Ints, left: Ints, right: Ints, leader: Ints, own: Ints, normalize: Ints, own_bits: int,
    keys: Longs, values: Ints, count: int, most: int, table: Ints, predecessors: Ints,
) -> Any:  # fmt: skip
    """Append the states after those of the rows, each once and in order; at most ``most`` altogether.

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
        for step in range(program[view], program[view + 1]):
            _run(step, first, codes, left, right, keys, values, registers, slots, missing, 0)
            _finish(
                step, target, out, alike, leader, own, normalize, own_bits, keys, values, registers, after, missing, 0
            )
            same = True
            for column in range(slots + 1):
                if after[column] != rows[row, column]:
                    same = False
                    break
            if same:
                continue
            is_end = False
            transitions += 1
            at = _place_of_row(rows, table, after)
            if table[at] != EMPTY:
                continue
            if count >= most:
                left_out = 1
                continue
            table[at] = int32(count)
            for column in range(slots + 1):
                rows[count, column] = after[column]
            predecessors[count] = int32(row)
            count += 1
        ends += is_end
    result = np.empty(4, np.int64)
    result[0], result[1], result[2], result[3] = count, transitions, ends, left_out
    return result
