"""Record batches of the model, as a broker stores them, and the transaction that each batch is truly part of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from harness.broker_files.segments.codecs import Codec
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import ABORT, COMMIT, MARKER_KEYS, Record


@dataclass(frozen=True, slots=True, eq=False)
class ModelBatch:
    """One batch; no two are equal, so that the same batch on several replicas is encoded once.

    ``txn``: the number of the transaction that the batch is truly part of, which no broker stores.
    """

    base_offset: int
    last_offset: int
    records: tuple[Record, ...]
    max_timestamp_ms: int
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    codec: Codec = "none"
    append_time: bool = False
    delete_horizon_ms: int | None = None
    txn: int | None = None

    @property
    def marker(self) -> str | None:
        """COMMIT or ABORT; None for data, and for a marker that the cleaner has emptied."""
        if not self.control or not self.records:
            return None
        return COMMIT if self.records[0].key == MARKER_KEYS[COMMIT] else ABORT

    def keeping(self, records: tuple[Record, ...]) -> "ModelBatch":
        """Return the batch with only these of its records, one or more (``MemoryRecords.filterTo``); itself if all."""
        if len(records) == len(self.records):
            return self
        stamp_ms = self.max_timestamp_ms if self.append_time else max(record.timestamp_ms for record in records)
        return replace(self, records=records, max_timestamp_ms=stamp_ms)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the batch's last record as written: compaction keeps the batch's offsets."""
        return -1 if self.base_sequence < 0 else self.base_sequence + self.last_offset - self.base_offset


@lru_cache(maxsize=1 << 16)
def encoded(batch: ModelBatch) -> bytes:
    """Return the bytes that a broker stores; a batch that several replicas share is encoded once."""
    return encode_batch(
        base_offset=batch.base_offset,
        records=batch.records,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.transactional,
        is_control=batch.control,
        leader_epoch=batch.leader_epoch,
        codec=batch.codec,
        max_timestamp_ms=batch.max_timestamp_ms,
        append_time=batch.append_time,
        delete_horizon_ms=batch.delete_horizon_ms,
        last_offset=batch.last_offset,
    )


def size_bytes(batches: Iterable[ModelBatch]) -> int:
    """Return how many bytes batches take."""
    return sum(len(encoded(batch)) for batch in batches)
