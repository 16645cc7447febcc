"""The version of the transaction protocol that a log shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.broker_files.segments.batches import Batch


def transaction_version(segments: Iterable[Iterable[Batch]]) -> int | None:
    """Return 2 if every marker has a higher producer epoch than its transaction's data, else 1; None without markers.

    From transactions v2 on (KIP-890) a coordinator increments the epoch with each end of a transaction, in v1 only if
    the coordinator itself ends the transaction.
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
