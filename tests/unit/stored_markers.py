"""Markers as brokers store them."""

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import ABORT, COMMIT, marker_record


def encode_marker(
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    timestamp_ms: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encode the control batch that ends a transaction: COMMIT, or else ABORT (EndTransactionMarker)."""
    return encode_batch(
        base_offset=base_offset,
        records=[marker_record(base_offset, timestamp_ms, COMMIT if commit else ABORT, coordinator_epoch)],
        producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True,
        leader_epoch=leader_epoch, delete_horizon_ms=delete_horizon_ms,
    )  # fmt: skip
