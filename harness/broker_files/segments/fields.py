"""Compiled loops that hash and copy the keys, values and headers that ``kernels`` has located."""

# ruff: noqa: PLR2004 (the bytes of a word)

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int32, int64, types, uint64

from harness.broker_files.segments.blocks import Bytes, Ints
from harness.broker_files.segments.jit import BYTES, compiled, copy_bytes, load_byte, load_eight_bytes
from harness.broker_files.segments.kernels import read_field

_MULTIPLIER = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)
_SEED = np.uint64(42)


@compiled(uint64(BYTES, int64, int64))
def _murmur_hash(data: Bytes, at: int, size: int) -> Any:
    """Hash bytes by MurmurHash64A (Austin Appleby)."""
    value = _SEED ^ (uint64(size) * _MULTIPLIER)
    end = at + size
    while end - at >= 8:
        word = load_eight_bytes(data, at) * _MULTIPLIER
        value = (value ^ ((word ^ (word >> _SHIFT)) * _MULTIPLIER)) * _MULTIPLIER
        at += 8
    if at < end:
        rest = uint64(0)
        for i in range(end - at):
            rest |= uint64(load_byte(data, at + i)) << uint64(8 * i)
        value = (value ^ rest) * _MULTIPLIER
    value = (value ^ (value >> _SHIFT)) * _MULTIPLIER
    return value ^ (value >> _SHIFT)


@compiled(types.void(BYTES, int32[::1], int32[::1], uint64[::1]))
def hash_fields(data: Bytes, places: Ints, sizes: Ints, out: npt.NDArray[np.uint64]) -> None:
    """Hash each field; null gives the seed."""
    for i in range(len(places)):
        out[i] = _murmur_hash(data, places[i], sizes[i]) if sizes[i] >= 0 else _SEED


@compiled(types.void(BYTES, int32[::1], int32[::1], int32[::1], BYTES))
def copy_fields(data: Bytes, places: Ints, sizes: Ints, offsets: Ints, out: Bytes) -> None:
    """Copy each field to ``out[offsets[i]:]``, except null and empty fields."""
    for i in range(len(places)):
        if sizes[i] > 0:
            copy_bytes(out, int64(offsets[i]), data, int64(places[i]), int64(sizes[i]))  # type: ignore[call-arg]


@compiled(types.void(BYTES, int64, int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))
def walk_headers(  # noqa: PLR0917
    data: Bytes, limit: int, places: Ints, counts: Ints,
    names_at: Ints, name_sizes: Ints, values_at: Ints, value_sizes: Ints,
) -> None:  # fmt: skip
    """Fill the columns with the headers of records that ``walk_records`` has validated; sizes of -1 are null."""
    done = 0
    for i in range(len(places)):
        at = int64(places[i])
        for _ in range(counts[i]):
            size, names_at[done], at = read_field(data, at, limit)
            name_sizes[done] = size
            size, values_at[done], at = read_field(data, at, limit)
            value_sizes[done] = max(size, -1)
            done += 1
