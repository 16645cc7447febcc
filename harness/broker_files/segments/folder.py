"""The files of a partition's folder that a broker would load as its log when it starts.

A cleaner writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, renames the files that they
replace to ``.deleted``, and then removes the ``.swap`` suffix. A copy of a folder may show any of these states. The
rules of ``LogLoader.load``, which completes them, are applied to names here. ``.index`` and ``.timeindex`` are unread.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from harness.broker_files.segments.batches import HEAD, HEADER, LOG_OVERHEAD, MAGIC, OLD_MAGICS, Batch, iter_batches
from harness.broker_files.segments.blocks import iter_blocks
from harness.broker_files.segments.records import MAX_INT64

_NAME: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)(?:\.(deleted|cleaned|swap))?")
_WHY_LEFT_OUT: Final = {
    "deleted": "marked for deletion",
    "cleaned": "not yet complete when its writer, a cleaner or a split, was interrupted",
    "swap": "part of a split that was interrupted",
    None: "replaced by a file of a cleaner or a split",
}
"""By the suffix of a file."""
_LAST_OFFSET_DELTA = 6


@dataclass(frozen=True, slots=True)
class Segment:
    """The file names of one segment; ``txnindex`` is None if the segment has no aborted transaction."""

    base_offset: int
    log: str
    txnindex: str | None


@dataclass(frozen=True, slots=True)
class Live:
    """A partition's segments in the order of the log, and the reasons why other log files are left out, by name."""

    segments: list[Segment]
    left_out: dict[str, str]


class _File(NamedTuple):
    name: str
    base_offset: int
    kind: str
    suffix: str | None


def live_segments(folder: Path) -> Live:
    """Return the log of a folder. Raises ``CorruptLogError`` for a ``.swap`` file that cannot be read."""
    names = [path.name for path in folder.iterdir() if not path.is_dir()]  # also a link to a missing file
    return choose_segments(names, lambda name: next_offset(folder / name))


def batches_in(folder: Path) -> Iterator[Batch]:
    """Yield the batches of a partition's folder, in order."""
    for segment in live_segments(folder).segments:
        yield from iter_batches((folder / segment.log).read_bytes(), source=segment.log)


def choose_segments(names: Iterable[str], next_offset_of: Callable[[str], int | None]) -> Live:
    """Choose the live files among the names in a folder. ``next_offset_of`` is called for ``.log.swap`` files only.

    - ``.deleted`` and ``.cleaned`` files are left out.
    - ``.swap`` files at or after the smallest ``.cleaned`` are left out: they come from an unfinished split.
    - Other ``.swap`` files count as completed; they replace all files from their lowest base offset to their end.
    """
    matches = filter(None, map(_NAME.fullmatch, sorted(names)))
    files = [_File(match[0], int(match[1]), match[2], match[3]) for match in matches]
    first_cleaned = min((file.base_offset for file in files if file.suffix == "cleaned"), default=MAX_INT64)
    swaps = [file for file in files if file.suffix == "swap" and file.base_offset < first_cleaned]
    swapped = [file for file in swaps if file.kind == "log"]
    start = min((file.base_offset for file in swapped), default=0)
    end = max((next_offset_of(file.name) or file.base_offset for file in swapped), default=0)
    remaining = [file for file in files if file.suffix is None and not start <= file.base_offset < end]
    live = {(file.base_offset, file.kind): file.name for file in (*remaining, *swaps)}
    bases = sorted(base_offset for base_offset, kind in live if kind == "log")
    segments = [Segment(base, live[base, "log"], live.get((base, "txnindex"))) for base in bases]
    gone = [file for file in files if file.kind == "log" and file.name not in live.values()]
    return Live(segments, {file.name: _WHY_LEFT_OUT[file.suffix] for file in gone})


def next_offset(path: Path) -> int | None:
    """Return the offset after a segment file's last batch, None for an empty file. Raises ``CorruptLogError``."""
    ends = [0]
    with path.open("rb") as file:
        for block in iter_blocks(file, source=str(path), verify_crc=False):
            ends += (int(rows["last_offset"][-1]) + 1 for rows in (block.batches, block.skipped) if len(rows))
    return max(ends) or None


def end_of_segment(path: Path) -> int:
    """Return the offset after the last complete batch, or the segment's first offset.

    Reads only the headers of batches, up to bytes that are not a batch: the zeros of a preallocated file, a batch that
    is cut, or damage, which the reader of the file reports.
    """
    end, position, size_bytes = int(path.name.partition(".")[0]), 0, path.stat().st_size
    with path.open("rb") as file:
        while position + HEAD.size <= size_bytes:
            file.seek(position)
            header = file.read(HEADER.size)
            base_offset, length, _, magic = HEAD.unpack_from(header)
            position += LOG_OVERHEAD + length
            if position > size_bytes or length <= 0:
                break
            if magic == MAGIC and len(header) == HEADER.size:
                end = base_offset + HEADER.unpack(header)[_LAST_OFFSET_DELTA] + 1
            elif magic in OLD_MAGICS:
                end = base_offset + 1
            else:
                break
    return end
