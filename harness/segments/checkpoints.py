"""Text checkpoints of a log directory: one offset for each partition.

``replication-offset-checkpoint`` holds high watermarks, ``cleaner-offset-checkpoint`` the first dirty
offsets, ``recovery-point-offset-checkpoint`` what is flushed, ``log-start-offset-checkpoint`` log starts.
The format is that of ``CheckpointFile`` with the entries of ``OffsetCheckpointFile``.
"""

from __future__ import annotations

import re

from harness.segments.batches import CorruptLogError

_VERSION = b"0"
_COUNT = re.compile(rb"\d{1,10}")
_ENTRY = re.compile(rb"([\w.\-]+)\s+(\d{1,10})\s+(-?\d{1,19})", re.ASCII)
_HEAD_LINES = 2


def read_checkpoint(data: bytes, *, source: str) -> dict[tuple[str, int], int]:
    """Map (topic, partition) to offset.

    A file of no line, or of the version line alone, is empty, as ``CheckpointFile`` reads it: brokers
    create it before they first write it. Raises ``CorruptLogError`` with the line and its byte position:
    another version, a malformed line, a partition twice, or other than the announced number of entries.
    """
    lines = data.splitlines(keepends=True)
    position = 0
    count = 0
    offsets: dict[tuple[str, int], int] = {}
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
        elif not (entry := _ENTRY.fullmatch(line)):
            reason = f"{_text(line)} is not 'topic partition offset'"
        elif (partition := (entry[1].decode(), int(entry[2]))) in offsets:
            reason = f"partition {partition[0]}-{partition[1]} a second time"
        else:
            offsets[partition] = int(entry[3])
        if reason:
            raise CorruptLogError(source, position, f"line {number}: {reason}")
        position += len(raw)
    if count != len(offsets):
        reason = f"line {_HEAD_LINES}: {count} entries announced, {len(offsets)} found"
        raise CorruptLogError(source, len(lines[0]), reason, cut=count > len(offsets))
    return offsets


def _text(line: bytes) -> str:
    return repr(line.decode("utf-8", "backslashreplace"))
