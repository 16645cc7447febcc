"""Compiled loops that hash and copy the keys, values and headers that ``kernels`` has located."""

# ruff: noqa: PLR2004 (the numbers of XXH64)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import int32, int64, types, uint64

from harness.broker_files.segments.columns import NULL_KEY_HASH
from harness.broker_files.segments.jit import (
    BYTES,
    compiled,
    copy_bytes,
    inlined,
    load_byte,
    load_eight_bytes,
    load_four_bytes,
)
from harness.broker_files.segments.kernels import read_field

if TYPE_CHECKING:
    import numpy.typing as npt

    from harness.broker_files.segments.columns import Bytes, Ints

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(NULL_KEY_HASH)


@inlined
def _rotated(value: Any, bits: int) -> Any:
    return (value << uint64(bits)) | (value >> uint64(64 - bits))


@inlined
def _round(lane: Any, value: Any) -> Any:
    return _rotated(lane + value * _PRIME_2, 31) * _PRIME_1


@compiled(uint64(BYTES, int64, int64))
def xxh64(data: Bytes, at: int, size: int) -> Any:
    """Hash bytes as Spark's ``xxhash64`` does: XXH64 with seed 42 (Yann Collet's specification)."""
    end = at + size
    if size >= 32:
        lane_1, lane_2 = _SEED + _PRIME_1 + _PRIME_2, _SEED + _PRIME_2
        lane_3, lane_4 = _SEED, _SEED - _PRIME_1
        while end - at >= 32:
            lane_1 = _round(lane_1, load_eight_bytes(data, at))
            lane_2 = _round(lane_2, load_eight_bytes(data, at + 8))
            lane_3 = _round(lane_3, load_eight_bytes(data, at + 16))
            lane_4 = _round(lane_4, load_eight_bytes(data, at + 24))
            at += 32
        value = _rotated(lane_1, 1) + _rotated(lane_2, 7) + _rotated(lane_3, 12) + _rotated(lane_4, 18)
        for lane in (lane_1, lane_2, lane_3, lane_4):
            value = (value ^ _round(uint64(0), lane)) * _PRIME_1 + _PRIME_4
    else:
        value = _SEED + _PRIME_5
    value += uint64(size)
    while end - at >= 8:
        value = _rotated(value ^ _round(uint64(0), load_eight_bytes(data, at)), 27) * _PRIME_1 + _PRIME_4
        at += 8
    if end - at >= 4:
        value = _rotated(value ^ (uint64(load_four_bytes(data, at)) * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        at += 4
    while at < end:
        value = _rotated(value ^ (uint64(load_byte(data, at)) * _PRIME_5), 11) * _PRIME_1
        at += 1
    value = (value ^ (value >> uint64(33))) * _PRIME_2
    value = (value ^ (value >> uint64(29))) * _PRIME_3
    return value ^ (value >> uint64(32))


@compiled(types.void(BYTES, int32[::1], int32[::1], uint64[::1]))
def hash_fields(data: Bytes, places: Ints, sizes: Ints, out: npt.NDArray[np.uint64]) -> None:
    """Hash each field; null gives `NULL_KEY_HASH`."""
    for i in range(len(places)):
        out[i] = xxh64(data, places[i], sizes[i]) if sizes[i] >= 0 else _SEED


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
