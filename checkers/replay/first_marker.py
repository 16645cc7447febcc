"""The rule of `batch_outcomes.with_first_marker` for a few markers in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def first_marker(markers: Iterable[tuple[int, int]], producer_id: int, offset: int) -> int | None:
    """Return the offset of the producer's first marker after an offset, else None.

    ``markers``: offset and producer id of every marker of the partition.
    """
    return min((at for at, producer in markers if producer == producer_id and at > offset), default=None)
