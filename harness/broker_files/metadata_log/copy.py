"""One broker's copy of the metadata log: the folder ``__cluster_metadata-0`` with segments and snapshots (KIP-630).

The log has no gap and is never compacted: ``KafkaMetadataLog`` removes segments that lie completely before the oldest
retained snapshot. A snapshot, ``<end offset>-<epoch>.checkpoint``, has the state after all records before its end
offset, as records between a header and a footer (``SnapshotHeaderRecord``). A record's value is a frame: version of the
frame, type and version of the message as unsigned varints, then the message (``AbstractApiMessageSerde``).
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32
from numpy.lib.recfunctions import repack_fields

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA
from harness.broker_files.internal_topics.message_format import message_formats
from harness.broker_files.segments.batches import CorruptLogError, marker, until_cut
from harness.broker_files.segments.blocks import HEADERS, Batches, Block, Unpacked, iter_blocks, unpack
from harness.broker_files.segments.folder import live_segments

_SNAPSHOT_FOOTER: Final = "control-4"
FRAME_VERSION: Final = 1


class RecordType(IntEnum):
    """The decoded types, by stored number (``apiKey``)."""

    REGISTER_BROKER = 0
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


SCHEMAS: Final = {
    RecordType(number): schema for schema in message_formats(CLUSTER_METADATA).values() for number in schema.api_keys
}
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_IDENTITY = ["base_offset", "last_offset", "leader_epoch", "crc"]
_NO_BATCHES = repack_fields(np.empty(0, HEADERS)[_IDENTITY])
_TYPES = np.array(sorted(RecordType), np.uint8)
_FRAME_BYTES: Final = 3
"""The smallest size of a frame: three varints. The types that are read take one byte each."""


@dataclass(frozen=True, slots=True, eq=False)
class MetadataCopy:
    """The batches and retained snapshots of a copy.

    ``batches``: offsets, leader epoch and CRC of each, a structured array without a gap. ``logs``: the segments' files
    in order. ``snapshots``: by end offset.
    """

    folder: Path
    logs: tuple[Path, ...]
    batches: Batches
    snapshots: Mapping[int, Path]

    @property
    def start_offset(self) -> int:
        """The first offset in the log; the end of an empty log."""
        return int(self.batches["base_offset"][0]) if len(self.batches) else self.end_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last batch; for an empty log, the end offset of the newest snapshot."""
        if len(self.batches):
            return int(self.batches["last_offset"][-1]) + 1
        return max(self.snapshots, default=0)

    @property
    def last_epoch(self) -> int:
        """The epoch of the controller that wrote the last batch, or -1."""
        return int(self.batches["leader_epoch"][-1]) if len(self.batches) else -1


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded record. In a snapshot, ``offset`` is the last offset before the snapshot's end, ``time_ms`` None."""

    offset: int
    type: RecordType
    fields: dict[str, Any]
    time_ms: int | None = None


def decode_record(value: bytes | None) -> tuple[RecordType, int, dict[str, Any]]:
    """Return the type, the version and the fields (see `MessageFormat.decode`) of a record.

    Raises ``ValueError`` for a malformed record, an unknown version of frame or message, and another type.
    """
    data = BytesIO(value or b"")
    try:
        frame_version, number, version = (UnsignedVarInt32.decode(data) for _ in range(3))
    except struct.error as error:
        raise ValueError(f"malformed frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise ValueError(f"frame version {frame_version} of a metadata record: only version {FRAME_VERSION} is known")
    record_type = RecordType(number)
    return record_type, version, SCHEMAS[record_type].decode(data.read(), version)


def read_copy(folder: Path) -> MetadataCopy:
    """Read a folder, verifying every CRC. Raises ``OSError``, and ``CorruptLogError`` unless the last batch is cut."""
    logs = tuple(folder / segment.log for segment in live_segments(folder).segments)
    rows = [_NO_BATCHES]
    for log in logs:
        with log.open("rb") as file:
            blocks = iter_blocks(file, source=str(log))
            blocks = until_cut(blocks) if log is logs[-1] else blocks
            rows += [repack_fields(block.batches[_IDENTITY]) for block in blocks]
    batches = np.concatenate(rows)
    gaps = np.flatnonzero(batches["base_offset"][1:] != batches["last_offset"][:-1] + 1)
    if len(gaps):
        last, following = int(batches["last_offset"][gaps[0]]), int(batches["base_offset"][gaps[0] + 1])
        raise CorruptLogError(str(folder), 0, f"offset {following} follows offset {last}: a segment is missing")
    snapshots = {int(name[1]): path for path in folder.iterdir() if (name := _SNAPSHOT.fullmatch(path.name))}
    return MetadataCopy(folder, logs, batches, snapshots)


def log_messages(copy: MetadataCopy, first_offset: int, end_offset: int) -> Iterator[Message]:
    """Yield the records of a `RecordType` in the batches between two offsets, at which batches begin.

    Raises ``CorruptLogError`` for a record that is malformed, or of an unsupported newer version.
    """
    for log in copy.logs:
        with log.open("rb") as file:
            for block in until_cut(iter_blocks(file, source=str(log), verify_crc=False)):
                batches = block.batches
                is_in_range = (batches["base_offset"] >= first_offset) & (batches["last_offset"] < end_offset)
                for unpacked in unpack(block, is_in_range):
                    yield from _messages(block, unpacked)


def snapshot_messages(path: Path, end_offset: int) -> Iterator[Message]:
    """Yield the records of a snapshot. Raises as `log_messages`, and if the file is damaged or incomplete."""
    source, ending = str(path), None
    with path.open("rb") as file:
        for block in iter_blocks(file, source=source):
            ending = marker(block.batch(len(block.batches) - 1), source=source) if len(block.batches) else ending
            for unpacked in unpack(block):
                for message in _messages(block, unpacked):
                    yield Message(end_offset - 1, message.type, message.fields)
    if ending is None or ending.type != _SNAPSHOT_FOOTER:
        raise CorruptLogError(source, path.stat().st_size, "the snapshot has no footer", cut=True)


def _messages(block: Block, unpacked: Unpacked) -> Iterator[Message]:
    frame_at, sizes = unpacked.value_at, unpacked.value_size
    is_frame = sizes >= _FRAME_BYTES
    versions, types = (unpacked.data[np.where(is_frame, frame_at + place, 0)] for place in (0, 1))
    is_read = ~is_frame | (versions != FRAME_VERSION) | np.isin(types, _TYPES)
    for row in np.flatnonzero(is_read).tolist():
        at, size = int(frame_at[row]), int(sizes[row])
        try:
            record_type, _, fields = decode_record(unpacked.data[at : at + size].tobytes() if size >= 0 else None)
            yield Message(int(unpacked.offset[row]), record_type, fields, int(unpacked.timestamp_ms[row]))
        except ValueError as error:
            position = int(block.batches["position"][unpacked.batch[row]])
            raise CorruptLogError(block.source, position, str(error)) from error
