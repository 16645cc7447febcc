"""Text checkpoints of brokers (``CheckpointFile``).

In a log directory, with one offset for each partition (``OffsetCheckpointFile``): ``replication-offset-checkpoint``
has high watermarks, ``cleaner-offset-checkpoint`` first dirty offsets, ``recovery-point-offset-checkpoint``
recovery points up to which logs are flushed, ``log-start-offset-checkpoint`` log start offsets. In a partition's
folder, ``leader-epoch-checkpoint`` has the start offset of each leader epoch (``LeaderEpochCheckpointFile``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = b"0"
_COUNT = re.compile(rb"\d{1,10}")
_ENTRY = re.compile(rb"([\w.\-]+)\s+(\d{1,10})\s+(-?\d{1,19})", re.ASCII)
_EPOCH = re.compile(rb"(\d{1,10})\s+(\d{1,19})", re.ASCII)
_HEAD_LINES = 2


def read_checkpoint(data: bytes, *, source: str) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition.

    An empty file and a file with only the version line have no entries, as in ``CheckpointFile``: brokers create the
    file before they first write it. Raises ``CorruptLogError`` with the line and its byte position for another version,
    a malformed line, a duplicate partition, or other than the announced number of entries.
    """
    offsets: dict[tuple[str, int], int] = {}
    for number, position, entry in _entries(data, _ENTRY, "topic partition offset", source=source):
        partition = (entry[1].decode(), int(entry[2]))
        if partition in offsets:
            reason = f"line {number}: partition {partition[0]}-{partition[1]} a second time"
            raise CorruptLogError(source, position, reason)
        offsets[partition] = int(entry[3])
    return offsets


def read_leader_epochs(data: bytes, *, source: str) -> dict[int, int]:
    """Return the first offset by leader epoch. Raises ``CorruptLogError`` as ``read_checkpoint`` does."""
    return {int(entry[1]): int(entry[2]) for _, _, entry in _entries(data, _EPOCH, "epoch offset", source=source)}


def _entries(
    data: bytes, pattern: re.Pattern[bytes], layout: str, *, source: str
) -> Iterator[tuple[int, int, re.Match[bytes]]]:
    """Yield line number, byte position and fields of each entry."""
    lines = data.splitlines(keepends=True)
    position = count = entries_read = 0
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\r\n")
        reason = None
        if number == 1:
            if line != _VERSION:
                reason = f"version {_text(line)}, not 0"
        elif number == _HEAD_LINES:
            if _COUNT.fullmatch(line):
                count = int(line)
            else:
                reason = f"entry count {_text(line)}"
        elif entry := pattern.fullmatch(line):
            yield number, position, entry
            entries_read += 1
        else:
            reason = f"{_text(line)} is not '{layout}'"
        if reason:
            raise CorruptLogError(source, position, f"line {number}: {reason}")
        position += len(raw)
    if count != entries_read:
        reason = f"line {_HEAD_LINES}: {count} entries announced, {entries_read} found"
        raise CorruptLogError(source, len(lines[0]), reason, cut=count > entries_read)


def _text(line: bytes) -> str:
    return repr(line.decode("utf-8", "backslashreplace"))
