"""What a cleaner may remove next, by batch headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.brokers.segments.batches import Batch

MARKER, TOMBSTONES = "marker", "tombstones"


@dataclass(frozen=True)
class AtStake:
    """The marker or tombstones that may go first: at ``removable_at_ms`` or at any cleaner pass after it.

    ``is_stamped``: a cleaner has set that time (the batch's delete horizon); else it is the earliest that could be.
    """

    offset: int
    kind: str
    removable_at_ms: int
    is_stamped: bool


def next_removal(batches: Iterable[Batch], window_ms: int) -> AtStake | None:
    """Return what may go first of these batches; None where no header tells of anything.

    ``window_ms``: from a record's writing to its earliest removal. A cleaner stamps tombstones and markers at its first
    pass over them (KIP-534); where nothing is stamped, the oldest marker counts from its timestamp on. Tombstones that
    no cleaner has passed yet do not show in headers: they have their whole retention to go.
    """
    stamped: AtStake | None = None
    oldest: AtStake | None = None
    for batch in batches:
        if batch.is_empty:
            continue
        kind, horizon_ms = MARKER if batch.is_control else TOMBSTONES, batch.delete_horizon_ms
        if horizon_ms is not None:
            if stamped is None or horizon_ms < stamped.removable_at_ms:
                stamped = AtStake(batch.base_offset, kind, horizon_ms, is_stamped=True)
        elif batch.is_control and (oldest is None or batch.max_timestamp_ms + window_ms < oldest.removable_at_ms):
            oldest = AtStake(batch.base_offset, kind, batch.max_timestamp_ms + window_ms, is_stamped=False)
    return stamped or oldest
