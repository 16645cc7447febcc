"""The next tombstones or marker that a log cleaner may remove, by batch headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.brokers.segments.batches import Batch

MARKER, TOMBSTONES = "marker", "tombstones"


@dataclass(frozen=True)
class NextRemoval:
    """The first marker or tombstones that may be removed: at ``removable_at_ms``, or by any cleaner pass after it.

    ``is_stamped``: ``removable_at_ms`` is the batch's delete horizon, which a cleaner set; else it is the earliest
    possible time.
    """

    offset: int
    kind: str
    removable_at_ms: int
    is_stamped: bool


def next_removal(batches: Iterable[Batch], window_ms: int) -> NextRemoval | None:
    """Return the first possible removal among these batches; None where no header shows any.

    ``window_ms``: from a record's write to its earliest removal. A cleaner sets the delete horizon of tombstones and
    markers at its first pass over them (KIP-534). Where no batch has a delete horizon, the oldest marker counts from
    its timestamp on. Headers do not show tombstones before a cleaner's first pass: their whole retention is left.
    """
    stamped: NextRemoval | None = None
    oldest: NextRemoval | None = None
    for batch in batches:
        if batch.is_empty:
            continue
        kind, horizon_ms = MARKER if batch.is_control else TOMBSTONES, batch.delete_horizon_ms
        if horizon_ms is not None:
            if stamped is None or horizon_ms < stamped.removable_at_ms:
                stamped = NextRemoval(batch.base_offset, kind, horizon_ms, is_stamped=True)
        elif batch.is_control and (oldest is None or batch.max_timestamp_ms + window_ms < oldest.removable_at_ms):
            oldest = NextRemoval(batch.base_offset, kind, batch.max_timestamp_ms + window_ms, is_stamped=False)
    return stamped or oldest
