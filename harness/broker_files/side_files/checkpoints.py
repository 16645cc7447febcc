"""Text checkpoints of brokers (``CheckpointFile``).

In a log directory, with one offset for each partition (``OffsetCheckpointFile``): ``replication-offset-checkpoint``
has high watermarks, ``cleaner-offset-checkpoint`` first dirty offsets, ``recovery-point-offset-checkpoint``
recovery points up to which logs are flushed, ``log-start-offset-checkpoint`` log start offsets. In a partition's
folder, ``leader-epoch-checkpoint`` has the start offset of each leader epoch (``LeaderEpochCheckpointFile``).
"""

import re
from collections.abc import Iterator

from harness.broker_files.segments.batches import CorruptLogError

_COUNT_LINE = 2
_HEAD = {1: (re.compile(rb"0"), "version {}, not 0"), _COUNT_LINE: (re.compile(rb"\d{1,10}"), "entry count {}")}
"""The pattern of a line, and the message for another one."""
_ENTRY = re.compile(rb"([\w.\-]+)\s+(\d{1,10})\s+(-?\d{1,19})", re.ASCII)
_EPOCH = re.compile(rb"(\d{1,10})\s+(\d{1,19})", re.ASCII)


def read_checkpoint(data: bytes, *, source: str) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition.

    An empty file and a file with only the version line have no entries, as in ``CheckpointFile``. Raises
    ``CorruptLogError`` for another version or number of entries, a malformed line, or a duplicate partition.
    """
    offsets: dict[tuple[str, int], int] = {}
    for number, position, entry in _entries(data, _ENTRY, "topic partition offset", source=source):
        topic, partition = entry[1].decode(), int(entry[2])
        if (topic, partition) in offsets:
            raise CorruptLogError(source, position, f"line {number}: partition {topic}-{partition} a second time")
        offsets[topic, partition] = int(entry[3])
    return offsets


def read_leader_epochs(data: bytes, *, source: str) -> dict[int, int]:
    """Return the first offset by leader epoch. Raises ``CorruptLogError`` as ``read_checkpoint`` does."""
    return {int(entry[1]): int(entry[2]) for _, _, entry in _entries(data, _EPOCH, "epoch offset", source=source)}


def _entries(
    data: bytes, pattern: re.Pattern[bytes], layout: str, *, source: str
) -> Iterator[tuple[int, int, re.Match[bytes]]]:
    """Yield line number, byte position and fields of each entry."""
    lines, position, count, entries_read = data.splitlines(keepends=True), 0, 0, 0
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip(b"\r\n")
        expected, problem = _HEAD.get(number, (pattern, f"{{}} is not '{layout}'"))
        fields = expected.fullmatch(line)
        if fields is None:
            text = repr(line.decode("utf-8", "backslashreplace"))
            raise CorruptLogError(source, position, f"line {number}: {problem.format(text)}")
        if number == _COUNT_LINE:
            count = int(line)
        elif number > _COUNT_LINE:
            yield number, position, fields
            entries_read += 1
        position += len(raw)
    if count != entries_read:
        reason = f"line {_COUNT_LINE}: {count} entries announced, {entries_read} found"
        raise CorruptLogError(source, len(lines[0]), reason, cut=count > entries_read)
