"""Redpanda's segment files, rewritten as the Kafka batches in them.

A batch on disk has a different, little-endian header before the records in Kafka's format; its ``crc`` is the Kafka
batch's, so that the rewritten batch can be verified. Offsets on disk are offsets of the Raft log, which also has
internal batches of Redpanda: a Kafka offset is the Raft offset minus the number of earlier offsets of some types.
Source: Redpanda's source; not run against a real broker.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from harness.broker_files.segments.batches import HEADER as KAFKA_HEADER
from harness.broker_files.segments.batches import LOG_OVERHEAD, MAGIC, CorruptLogError

HEADER: Final = struct.Struct("<IiqbIhiqqqhii")
"""Header CRC, size (with this header), base offset, type, CRC, attributes, last offset delta, first timestamp, max
timestamp, producer id, producer epoch, base sequence, record count: 61 bytes."""

RAFT_DATA: Final = 1
"""Records of clients, and the markers of their transactions."""

TAKING_OFFSETS: Final = frozenset({2, 19, 23, 25, 34, 37, 38, 40})
"""Types of internal batches whose offsets Kafka's clients never see; other types are gaps for clients."""

SEGMENT: Final = re.compile(r"(?P<base_offset>\d+)-(?P<term>\d+)-v1\.log")


def is_segment(name: str) -> bool:
    """Return whether a file of a partition's folder is one of its segments."""
    return SEGMENT.fullmatch(name) is not None


def to_kafka(segments: Mapping[str, bytes]) -> bytes:
    """Return the Kafka batches of a partition from all of its segments, by name; leader epochs are terms.

    The log must be complete from its start, as a removed part may have internal offsets. Raises `CorruptLogError` for
    data that no broker writes, and for a batch that is cut before the end of the last segment.
    """
    named = [(name, match) for name in segments if (match := SEGMENT.fullmatch(name))]
    ordered = sorted((int(match["base_offset"]), int(match["term"]), name) for name, match in named)
    written = bytearray()
    try:
        for part in _rewritten(segments, ordered):
            written += part
    except CorruptLogError as error:
        if not (error.cut and error.source == ordered[-1][-1]):
            raise
    return bytes(written)


def _rewritten(segments: Mapping[str, bytes], ordered: Iterable[tuple[int, int, str]]) -> Iterator[bytes]:
    """Yield parts of the Kafka batches. ``ordered``: base offset, term and name of each segment in the log's order."""
    taken = 0
    for _, term, name in ordered:
        data, position = memoryview(segments[name]), 0
        while position + HEADER.size <= len(data) and any(data[position : position + HEADER.size]):
            fields = HEADER.unpack_from(data, position)
            _, size_bytes, base_offset, kind = fields[:4]
            last_offset_delta = fields[6]
            if size_bytes < HEADER.size or last_offset_delta < 0:
                raise CorruptLogError(name, position, f"impossible size {size_bytes} or delta {last_offset_delta}")
            if position + size_bytes > len(data):
                cut = f"batch is cut: {len(data) - position} of {size_bytes} bytes"
                raise CorruptLogError(name, position, cut, cut=True)
            if kind == RAFT_DATA:
                yield KAFKA_HEADER.pack(base_offset - taken, size_bytes - LOG_OVERHEAD, term, MAGIC, *fields[4:])
                yield bytes(data[position + HEADER.size : position + size_bytes])
            elif kind in TAKING_OFFSETS:
                taken += last_offset_delta + 1
            position += size_bytes
        if any(data[position:]):
            raise CorruptLogError(name, position, f"batch is cut: {len(data) - position} bytes of a header", cut=True)
