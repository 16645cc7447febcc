"""Write magic-2 record batches as a broker would: for tests and for simulated brokers."""

from collections.abc import Sequence

from crc32c import crc32c

from harness.broker_files.segments.batches import (
    APPEND_TIME,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from harness.broker_files.segments.codecs import CODECS, Codec, compress
from harness.broker_files.segments.records import Record, encode_record


def encode_batch(
    *,
    base_offset: int,
    records: Sequence[Record] = (),
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = 0,
    codec: Codec = "none",
    max_timestamp_ms: int | None = None,
    append_time: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """Encode one batch with a valid CRC.

    The records' offsets may have gaps. ``last_offset``: the last record's by default, needed if compaction removed that
    record. A delete horizon replaces the first record's timestamp, as in the cleaner. With ``append_time``, every
    record has the timestamp ``max_timestamp_ms`` for readers. An empty batch has no payload and no codec
    (``DefaultRecordBatch.writeEmptyHeader``). Raises ``struct.error`` for a number that does not fit its field.
    """
    timestamps = [record.timestamp_ms for record in records] or [-1]
    base_timestamp_ms = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    packed = b"".join(encode_record(record, base_offset, base_timestamp_ms) for record in records)
    payload, codec_bits = (compress(codec, packed), CODECS.index(codec)) if records else (b"", 0)
    flags = append_time * APPEND_TIME | is_transactional * TRANSACTIONAL | is_control * CONTROL
    horizon = 0 if delete_horizon_ms is None else DELETE_HORIZON
    times_ms = (base_timestamp_ms, max(timestamps) if max_timestamp_ms is None else max_timestamp_ms)
    producer, offset_delta = (producer_id, producer_epoch, base_sequence), last_offset - base_offset
    fields = (codec_bits | flags | horizon, offset_delta, *times_ms, *producer, len(records))
    return seal_batch((base_offset, 0, leader_epoch, MAGIC, 0, *fields), payload)


def seal_batch(header: Sequence[int], payload: bytes) -> bytes:
    """Return a batch with its length and a valid CRC. ``header``: the fields of `HEADER`; these two are ignored."""
    base_offset, _, leader_epoch, magic, _, *fields = header
    length = HEADER.size - LOG_OVERHEAD + len(payload)
    batch = bytearray(HEADER.pack(base_offset, length, leader_epoch, magic, 0, *fields)) + payload
    batch[CRC_FROM - 4 : CRC_FROM] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4)
    return bytes(batch)
