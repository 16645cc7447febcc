"""Sets of offsets as ascending ranges that neither touch nor overlap, each from its first offset up to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the union of ranges in any order; empty ranges are dropped, neighbours are merged."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if first >= end:
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return tuple(merged)


def gaps(ranges: Ranges, end: int) -> Ranges:
    """Return the ranges between 0 and ``end`` that these ranges do not cover."""
    missing: list[Range] = []
    at = 0
    for first, after in ranges:
        if at < first:
            missing.append((at, min(first, end)))
        at = after
        if at >= end:
            break
    if at < end:
        missing.append((at, end))
    return tuple(missing)


def holds(ranges: Ranges, offset: int) -> bool:
    """Return whether an offset is in one of these ranges."""
    return any(first <= offset < end for first, end in ranges)


def overlap(ranges: Ranges, first: int, end: int) -> bool:
    """Return whether one of these ranges overlaps the range from ``first`` up to ``end``."""
    return any(low < end and first < high for low, high in ranges)
