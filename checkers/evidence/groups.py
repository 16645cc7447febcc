"""Equal hashes, numbered alike: what sorting them would tell, in a fifth of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int32, int64, uint64

from harness.brokers.segments.jit import compiled

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int32]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FREE = -1


def grouped(hashes: npt.NDArray[np.uint64]) -> tuple[Ints, int]:
    """Return the number of each one's group, and how many groups there are: equal ones are a group."""
    bits = (2 * len(hashes)).bit_length()
    groups = np.empty(len(hashes), np.int32)
    return groups, _number(hashes, bits, np.full(1 << bits, _FREE, np.int32), groups)


@compiled(int64(uint64[::1], int64, int32[::1], int32[::1]))
def _number(hashes: npt.NDArray[np.uint64], bits: int, slots: Ints, groups: Ints) -> int:
    """Fill ``groups``. ``slots``: 2^bits free ones, twice as many as hashes at least; each takes a group's first."""
    count = 0
    last = len(slots) - 1
    for i in range(len(hashes)):
        # Hashes of one bucket have a remainder in common, and may have lower bits.
        slot = int64((hashes[i] * _SPREAD) >> uint64(64 - bits))
        while slots[slot] != _FREE and hashes[slots[slot]] != hashes[i]:
            slot = slot + 1 if slot < last else 0
        if slots[slot] == _FREE:
            slots[slot] = i
            groups[i] = count
            count += 1
        else:
            groups[i] = groups[slots[slot]]
    return count
