"""The fast reader of segment files: batches in blocks, their records as columns, in bounded memory.

Results, errors and error messages are the same as from ``batches.iter_entries``, ``batches.marker`` and
``batches.iter_records``, which this module calls for unusual data. The first use in a process loads numba and the
loops, the first use on a machine compiles them.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from harness.broker_files.segments.batches import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    LEAST_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    OLD_CRC_FROM,
    Batch,
    CorruptLogError,
    iter_batches,
    iter_entries,
    iter_records,
    marker,
)
from harness.broker_files.segments.codecs import CODECS, MAX_DECOMPRESSED_BYTES, decompress_into
from harness.broker_files.segments.records import MARKERS

Batches: TypeAlias = npt.NDArray[np.void]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

BLOCK_BYTES: Final = 8 << 20
WORTH_COMPILING_BYTES: Final = 64 << 20
"""The size from which on this reader is faster than the reference, which takes two seconds for it. This reader takes
half a second to start, and four more seconds to compile its loops for the first time.
"""

_LONGS = ("position", "base_offset", "last_offset", "timestamp_base_ms", "max_timestamp_ms", "producer_id")
HEADERS: Final = np.dtype(
    [
        *((name, np.int64) for name in _LONGS),
        *((name, np.int32) for name in ("size_bytes", "leader_epoch", "base_sequence", "record_count")),
        ("crc", np.uint32),
        *((name, np.int16) for name in ("attributes", "producer_epoch")),
        *((name, np.int8) for name in ("magic", "marker")),
    ],
    align=True,
)
"""A row for each batch: the fields of ``batches.Batch`` under the same names, and ``marker``, from a control batch.

A row of an entry of magic 0 or 1 has its position, size, CRC32 and offset; its other fields are zero.
"""
MARKER_NAMES: Final = (*MARKERS, "other")
"""Names by value of ``marker``; types that end no transaction have the same name."""
NO_MARKER, OTHER_CONTROL = -1, len(MARKERS)
"""Values of ``marker``: data, or a control batch that compaction has emptied; and the other types."""
ASK: Final = -2
"""The value of ``marker`` for unusual bytes until the reference has read them."""

_MARKERS = {kind: number for number, kind in enumerate(MARKERS)}
_ROWS = 1 << 17
_RECORD_COLUMNS = (np.int32, np.int64, np.int64, np.uint8, *6 * (np.int32,))
_UNPACKED_BYTES = 8 << 20


class Readable(Protocol):
    """A file open for bytes, or an object with the same method."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start, and return the number of bytes; 0 at the end of the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive complete batches of one file.

    ``data`` begins at byte ``position`` of ``source``. ``batches`` and ``skipped``, the entries of magic 0 and 1,
    are structured arrays of `HEADERS`, with positions in the file.
    """

    source: str
    position: int
    data: Bytes
    batches: Batches
    skipped: Batches

    def batch(self, index: int) -> Batch:
        """Return a batch as the reference reads it."""
        return _reference_batch(self.data, self.position, self.batches[index], self.source)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """Records of one block as columns; places and sizes refer to ``data``.

    ``batch`` indexes ``Block.batches``. A size of -1 is null; headers follow each other from ``headers_at``.
    """

    data: Bytes
    batch: Ints
    offset: Longs
    timestamp_ms: Longs
    attributes: Bytes
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    headers_at: Ints
    header_count: Ints

    @property
    def is_tombstone(self) -> npt.NDArray[np.bool_]:
        """Whether each record deletes its key."""
        return self.value_size < 0


def iter_blocks(
    file: Readable, *, source: str, block_bytes: int = BLOCK_BYTES, verify_crc: bool = True, is_last: bool = True
) -> Iterator[Block]:
    """Read a file from its current position to its end, in blocks of ``block_bytes`` or of one larger batch.

    ``is_last`` is as in ``batches.iter_entries``. Raises ``CorruptLogError`` as that does, and as ``batches.marker``
    does for a control batch, after yielding the batches before the error.
    """
    from harness.broker_files.segments import kernels  # noqa: PLC0415  (loads numba, and compiles the loops)

    position, previous_offset = 0, -1
    rest: Bytes = np.empty(0, np.uint8)
    while True:
        is_announced = len(rest) >= HEADER.size
        entry_bytes = LOG_OVERHEAD + int.from_bytes(rest[8:LOG_OVERHEAD].tobytes()) if is_announced else HEADER.size
        data, at_end = _filled(file, rest, max(block_bytes, entry_bytes))
        rows = np.empty(len(data) // LEAST_BYTES[0] + 1, HEADERS)
        count, end, status = kernels.walk_batches(data, position, previous_offset, rows)
        entries = rows[:count].copy()
        sound = _sound(data, position, entries, source, verify_crc=verify_crc)
        if sound < count:
            end, status = int(entries["position"][sound]) - position, kernels.WRONG
            entries = entries[:sound]
        if len(entries):
            is_old = entries["magic"] != MAGIC
            yield Block(source, position, data[:end], entries[~is_old], entries[is_old])
            previous_offset = int(entries["last_offset"][-1])
        rest = data[end:]
        position += end
        wrong = _not_zero(file, rest) if status == kernels.ZERO and is_last else rest
        if wrong is None:
            return
        if status in {kernels.ZERO, kernels.WRONG} or (status == kernels.CUT and at_end):
            _refuse(wrong, position, previous_offset, source, verify_crc=verify_crc)
        if at_end:
            return


def unpack(
    block: Block, selection: npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]] | None = None
) -> Iterator[Unpacked]:
    """Yield the records of data batches. ``selection``: a mask over ``block.batches``, or rising indexes into it.

    Control batches are left out. One `Unpacked` has at most 131,072 records, and 8 MiB of unpacked bytes plus the rest
    of a batch. Raises ``CorruptLogError`` as ``batches.iter_records``, after yielding the records before the error.
    """
    chosen = np.arange(len(block.batches))[... if selection is None else selection]
    chosen = chosen[block.batches["attributes"][chosen] & CONTROL == 0]
    batches = block.batches[chosen]
    if (batches["attributes"] & CODEC_MASK).any():
        yield from _unpack_compressed(block, chosen)
    else:
        ends = batches["position"] - block.position + batches["size_bytes"]
        starts = batches["position"] - block.position + HEADER.size
        yield from _walk_records(block, chosen, block.data, starts, ends)


def key_hashes(unpacked: Unpacked) -> npt.NDArray[np.uint64]:
    """Hash every key."""
    from harness.broker_files.segments.fields import hash_fields  # noqa: PLC0415  (loads numba)

    hashes = np.empty(len(unpacked.offset), np.uint64)
    hash_fields(unpacked.data, unpacked.key_at, unpacked.key_size, hashes)
    return hashes


def _filled(file: Readable, rest: Bytes, size_bytes: int) -> tuple[Bytes, bool]:
    """Return ``rest`` and the next bytes of the file, ``size_bytes`` in all, and whether the file ends before that."""
    data = np.empty(size_bytes, np.uint8)
    data[: len(rest)] = rest
    view, filled = data.data, len(rest)
    while filled < size_bytes and (count := file.readinto(view[filled:])):
        filled += count
    return data[:filled], filled < size_bytes


def _sound(data: Bytes, position: int, entries: Batches, source: str, *, verify_crc: bool) -> int:
    """Return the number of entries before the first with a wrong CRC or a malformed marker, and set their markers."""
    sound = _with_right_crc(data, position, entries) if verify_crc else len(entries)
    markers = entries["marker"]
    for index in np.flatnonzero(markers[:sound] == ASK).tolist():
        try:
            decoded = marker(_reference_batch(data, position, entries[index], source), source=source)
        except CorruptLogError:
            return int(index)
        markers[index] = NO_MARKER if decoded is None else _MARKERS.get(decoded.type, OTHER_CONTROL)
    return sound


def _with_right_crc(data: Bytes, position: int, entries: Batches) -> int:
    view = data.data
    starts = (entries["position"] - position).tolist()
    sizes, crcs, magics = (entries[name].tolist() for name in ("size_bytes", "crc", "magic"))
    for index, (at, size, crc, magic) in enumerate(zip(starts, sizes, crcs, magics, strict=True)):
        end = at + size
        if (crc32c(view[at + CRC_FROM : end]) if magic == MAGIC else crc32(view[at + OLD_CRC_FROM : end])) != crc:
            return index
    return len(entries)


def _not_zero(file: Readable, rest: Bytes) -> Bytes | None:
    """Return None if ``rest`` and the rest of the file is zero, else ``rest`` and the next block that is not zero."""
    if rest.any():
        return rest
    while True:
        data, at_end = _filled(file, rest[:0], BLOCK_BYTES)
        if data.any():
            return np.concatenate([rest, data])
        if at_end:
            return None


def _refuse(data: Bytes, position: int, previous_offset: int, source: str, *, verify_crc: bool) -> NoReturn:
    """Raise the reference's error for the first entry of ``data``, which begins at ``position``."""
    entries = iter_entries(
        data.data, source=source, verify_crc=verify_crc, start=position, previous_offset=previous_offset, is_last=False
    )
    entry = next(entries, None)
    if isinstance(entry, Batch):
        marker(entry, source=source)
    raise RuntimeError(f"{source} at byte {position}: the two readers of segments disagree")


def _reference_batch(data: Bytes, position: int, row: np.void, source: str) -> Batch:
    start = int(row["position"])
    view = data[start - position :][: int(row["size_bytes"])]
    (batch,) = iter_batches(view.data, source=source, verify_crc=False, start=start)
    return batch


def _unpack_compressed(block: Block, chosen: npt.NDArray[np.intp]) -> Iterator[Unpacked]:
    """Unpack batches in groups of about `_UNPACKED_BYTES`."""
    view, rows, first = block.data.data, block.batches[chosen], 0
    starts = (rows["position"] - block.position).tolist()
    sizes, attributes = rows["size_bytes"].tolist(), rows["attributes"].tolist()
    while first < len(chosen):
        # Only the written pages of this map take memory.
        room = _UNPACKED_BYTES + MAX_DECOMPRESSED_BYTES
        arena = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        places, until, is_sound = [0], first, True
        while is_sound and until < len(chosen) and places[-1] < _UNPACKED_BYTES:
            payload = view[starts[until] + HEADER.size : starts[until] + sizes[until]]
            out = memoryview(arena)[places[-1] : places[-1] + MAX_DECOMPRESSED_BYTES]
            try:
                places.append(places[-1] + decompress_into(CODECS[attributes[until] & CODEC_MASK], payload, out))
                until += 1
            except ValueError:
                is_sound = False
        ends, data = np.array(places, np.int64), np.frombuffer(arena, np.uint8, places[-1])
        yield from _walk_records(block, chosen[first:until], data, ends[:-1], ends[1:])
        if not is_sound:
            _refuse_records(block, int(chosen[until]))
        first = until


def _walk_records(
    block: Block, chosen: npt.NDArray[np.intp], data: Bytes, starts: Longs, ends: Longs
) -> Iterator[Unpacked]:
    """Yield the records of batches whose unpacked bytes are ``data[starts[i]:ends[i]]``."""
    from harness.broker_files.segments import kernels  # noqa: PLC0415  (as in `iter_blocks`)

    batches = block.batches[chosen]
    state = np.array([0, 0, 0, -1], np.int64)
    remaining = int(batches["record_count"].sum(dtype=np.int64))
    status = kernels.FULL
    while status == kernels.FULL:
        columns: list[Any] = [np.empty(min(remaining, _ROWS), dtype) for dtype in _RECORD_COLUMNS]
        count, status = kernels.walk_records(data, batches, starts, ends, state, *columns)
        remaining -= count
        if count:
            batch, *others = (column[:count] for column in columns)
            yield Unpacked(data, chosen[batch].astype(np.int32), *others)
    if status == kernels.WRONG:
        _refuse_records(block, int(chosen[state[0]]))


def _refuse_records(block: Block, index: int) -> NoReturn:
    """Raise the reference's error for the records of a batch."""
    batch = block.batch(index)
    for _ in iter_records(batch, source=block.source):
        pass
    raise RuntimeError(f"{block.source} at byte {batch.position}: the two readers of segments disagree")
