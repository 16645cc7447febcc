"""The version of the transaction protocol that a log shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.broker_files.segments.batches import Batch


def transaction_version(segments: Iterable[Iterable[Batch]]) -> int | None:
    """Return 2 where every marker carries a higher producer epoch than the data it ends, 1 where one does not.

    From transactions v2 on (KIP-890) a coordinator bumps the epoch with each end of a transaction; in v1 it
    does so only for one that it ends itself. None where no marker follows data.
    """
    bumped: set[bool] = set()
    for segment in segments:
        epochs: dict[int, int] = {}
        for batch in segment:
            if not batch.is_transactional:
                continue
            if not batch.is_control:
                epochs[batch.producer_id] = batch.producer_epoch
            elif batch.producer_id in epochs:
                bumped.add(batch.producer_epoch > epochs.pop(batch.producer_id))
    return None if not bumped else 2 if all(bumped) else 1
