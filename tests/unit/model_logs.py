"""Logs of the model, batch by batch: ``data(0, "a=1", "b")`` is a batch with a value and a tombstone."""

from harness.broker_files.segments.records import Record, marker_record
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import Replica


def data(
    base: int, *pairs: str, txn: int | None = None, epoch: int = 0, idempotent: int | None = None, at_ms: int = 0
) -> ModelBatch:
    """Return a batch of ``K=v`` values and ``K`` tombstones; ``txn`` and ``idempotent`` are producer ids."""
    parts = [pair.partition("=") for pair in pairs]
    producer_id = txn if txn is not None else -1 if idempotent is None else idempotent
    return ModelBatch(
        base_offset=base, last_offset=base + len(pairs) - 1,
        records=tuple(
            Record(base + n, at_ms, key.encode(), value.encode() if sign else None)
            for n, (key, sign, value) in enumerate(parts)
        ),
        max_timestamp_ms=at_ms, producer_id=producer_id, producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1, transactional=txn is not None,
    )  # fmt: skip


def emptied(base: int, txn: int, epoch: int = 0) -> ModelBatch:
    """Return a marker that the cleaner has emptied."""
    return ModelBatch(base, base, (), 0, producer_id=txn, producer_epoch=epoch, transactional=True, control=True)


def marker(base: int, outcome: str, txn: int, epoch: int = 0) -> ModelBatch:
    """Return the marker of a transaction."""
    records = (marker_record(base, 0, outcome),)
    return ModelBatch(base, base, records, 0, producer_id=txn, producer_epoch=epoch, transactional=True, control=True)


def replica(*batches: ModelBatch, high_watermark: int | None = None) -> Replica:
    """Return a replica with a segment for each batch, the last of which is active."""
    log = Replica(1)
    for batch in batches:
        log.append(batch, roll=True)
    log.advance_high_watermark(log.log_end if high_watermark is None else high_watermark)
    return log
