"""Logs made at random of everything that brokers write, and of what none writes."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from crc32c import crc32c
from stored_markers import encode_marker

from harness.broker_files.segments import batches as segment_batches
from harness.broker_files.segments.batches import CorruptLogError, OldEntry, Record
from harness.broker_files.segments.codecs import CODECS, Codec
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Marker

SOURCE = "t-0/00.log"


def small_batch(*offsets: int, **fields: Any) -> bytes:
    """Return a batch with a value of K at each offset."""
    records = [Record(offset, 1000 + offset, b"K", b"v") for offset in offsets]
    return encode_batch(**{"base_offset": offsets[0], "records": records, **fields})


@dataclass
class Read:
    """What the reference reads of a log before its end or the bad place."""

    batches: list[tuple[segment_batches.Batch, Marker | None]]
    old: list[OldEntry]
    records: list[Record]
    error: CorruptLogError | None = None


def read_by_reference(data: bytes, *, verify_crc: bool = True) -> Read:
    """Read everything; records of data batches only."""
    read = Read([], [], [])
    try:
        for entry in segment_batches.iter_entries(data, source=SOURCE, verify_crc=verify_crc):
            if isinstance(entry, OldEntry):
                read.old.append(entry)
                continue
            read.batches.append((entry, segment_batches.marker(entry, source=SOURCE)))
            if not entry.is_control:
                read.records.extend(segment_batches.iter_records(entry, source=SOURCE))
    except CorruptLogError as error:
        read.error = error
    return read


def random_log(rng: random.Random, batches: int, *, codecs: Sequence[Codec] = CODECS, old: bool = False) -> list[bytes]:
    """Return the entries of a log that a broker may have written."""
    made: list[bytes] = [old_entry(n, n % 2) for n in range(rng.randrange(3))] if old else []
    offset = rng.choice((len(made), 2**40))
    for _ in range(batches):
        kind = rng.choice((_data, _data, _data, _data, _empty, _marker, _other_control, _empty_control))
        last_offset, entry = kind(rng, offset, rng.choice(codecs))
        made.append(entry)
        offset = last_offset + rng.choice((1, 1, 2, 1000))
    return made


def _data(rng: random.Random, base: int, codec: Codec) -> tuple[int, bytes]:
    offset = base + rng.choice((0, 0, 3))
    first_ms = rng.choice((0, 1_700_000_000_000, -5))
    records = []
    for _ in range(rng.choice((1, 2, 40))):
        headers = tuple(
            (rng.choice(("txn", "", "é")), rng.choice((None, b"", rng.randbytes(rng.randrange(9)))))
            for _ in range(rng.choice((0, 0, 1, 3)))
        )
        key = rng.choice((None, b"", b"key-%d" % rng.randrange(50), rng.randbytes(rng.randrange(80))))
        value = rng.choice((None, b"", rng.randbytes(rng.choice((1, 7, 100, 300)))))
        timestamp_ms = first_ms + rng.choice((0, 1, -1, 2**33))
        records.append(Record(offset, timestamp_ms, key, value, headers, rng.choice((0, 0x20, 0xFF))))
        offset += rng.choice((1, 1, 5, 200_000))
    is_transactional = rng.random() < 0.5
    batch = encode_batch(
        base_offset=base, records=records, codec=codec, producer_id=rng.choice((-1, 7, 2**40)),
        producer_epoch=rng.choice((-1, 3)), base_sequence=rng.choice((-1, 0, 2**31 - 1)),
        leader_epoch=rng.choice((-1, 5)), is_transactional=is_transactional, append_time=rng.random() < 0.2,
        delete_horizon_ms=rng.choice((None, None, 1_700_086_400_000)),
        last_offset=records[-1].offset + rng.choice((0, 0, 4)),
    )  # fmt: skip
    return records[-1].offset + 4, batch


def _empty(rng: random.Random, base: int, _: Codec) -> tuple[int, bytes]:
    last_offset = base + rng.choice((0, 30))
    return last_offset, encode_batch(
        base_offset=base, last_offset=last_offset, producer_id=7, producer_epoch=0, is_transactional=True
    )


def _empty_control(_rng: random.Random, base: int, _: Codec) -> tuple[int, bytes]:
    return base, encode_batch(base_offset=base, producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)


def _marker(rng: random.Random, base: int, _: Codec) -> tuple[int, bytes]:
    return base, encode_marker(
        base_offset=base,
        producer_id=7,
        producer_epoch=rng.choice((0, 3)),
        commit=rng.random() < 0.5,
        timestamp_ms=1_700_000_000_000,
        coordinator_epoch=rng.randrange(2**20),
        delete_horizon_ms=rng.choice((None, 1_700_086_400_000)),
    )


def _other_control(rng: random.Random, base: int, codec: Codec) -> tuple[int, bytes]:
    """Make a decision as no broker writes it but may: compressed, of another type, with headers."""
    key = struct.pack(">hh", rng.choice((0, 1)), rng.choice((0, 1, 2, 5, -1)))
    headers = rng.choice(((), (("h", b"v"),)))
    record = Record(base, 5, key, struct.pack(">hi", 0, 9) + b"more", headers)
    return base, encode_batch(base_offset=base, records=[record], codec=codec, is_control=True, is_transactional=True)


def sealed(entry: bytes) -> bytes:
    """Return a batch with the length and the CRC of its content."""
    covered = entry[21:]
    return entry[:8] + struct.pack(">i", len(entry) - 12) + entry[12:17] + struct.pack(">I", crc32c(covered)) + covered


def old_entry(offset: int, magic: int, key: bytes = b"k", value: bytes = b"v") -> bytes:
    """Return a record as a broker before 0.11 wrote it."""
    timestamp = struct.pack(">q", 5) if magic else b""
    covered = bytes([magic, 0]) + timestamp + struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(covered) + 4, crc32(covered)) + covered
