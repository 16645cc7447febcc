"""Invariants of a log and of a reader, by name of their violation; the truth is the list of all written records.

They are Kafka's guarantees for compacted topics, as in seeds 1 and 2: the latest value of each key stays, a deleted
key stays deleted, a reader who reaches the end within delete.retention.ms sees every deletion of a value that it has
read, order and offsets do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from harness.broker_files.segments.records import Record
from harness.models.cloud_topics.metastore import Log, holds

LOST_VALUE: Final = "lost-value"
"""The last value of a key is not in the log, or was not delivered to a reader who is at the log's end."""
UNDELETED: Final = "undeleted"
"""The last record of a key, a tombstone, is missing, and a new reader gets an earlier value."""
OUT_OF_ORDER: Final = "out-of-order"
"""Offsets of records do not rise, or objects do not cover the log without gap and overlap."""
OFFSET_CHANGED: Final = "offset-changed"
"""At some offset is a record that was never written there."""
MISSED_TOMBSTONE: Final = "missed-tombstone"
"""A reader within delete.retention.ms is at the log's end, has a value and missed its deletion."""
FALSE_CLEAN: Final = "false-clean"
"""A record in a cleaned range has an earlier record of its key in the log.

That is harmless until the later record is a tombstone that is removed.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer that reads from the start, record by record. ``latest``: the last record of each key, by key."""

    began_at_ms: int
    position: int = 0
    latest: tuple[Record, ...] = ()

    def next(self, log: Log) -> Reader:
        """Return the reader after one more record, or at the log's end. Brokers serve the same records (the post)."""
        record = next((record for record in log.records() if record.offset >= self.position), None)
        if record is None:
            return replace(self, position=log.end_offset)
        others = (last for last in self.latest if last.key != record.key)
        latest = tuple(sorted((*others, record), key=lambda last: last.key or b""))
        return replace(self, position=record.offset + 1, latest=latest)


def last_of_keys(records: Sequence[Record]) -> dict[bytes | None, Record]:
    """Return the last record of each key."""
    return {record.key: record for record in records}


def deduplicated(written: Sequence[Record]) -> list[Record]:
    """Return the records of a log after full cleaning, without tombstones: the last value of each key."""
    last = last_of_keys(written).values()
    return sorted((record for record in last if record.value is not None), key=lambda record: record.offset)


def wrong_in_log(log: Log, written: Sequence[Record]) -> set[str]:
    """Return the names of the violations in a log to which these records were written, in this order."""
    records = list(log.records())
    truth = {record.offset: record for record in written}
    violations = _wrong_for_new_reader(records, written)
    starts, ends = [piece.base_offset for piece in log.objects], [piece.end_offset for piece in log.objects]
    is_covered = [*starts, log.end_offset] == [0, *ends]
    if not is_covered or any(later.offset <= record.offset for record, later in pairwise(records)):
        violations.add(OUT_OF_ORDER)
    if any(truth.get(record.offset) != record for record in records):
        violations.add(OFFSET_CHANGED)
    keys: set[bytes | None] = set()
    for record in records:
        if record.key in keys and holds(log.cleaned, record.offset):
            violations.add(FALSE_CLEAN)
        keys.add(record.key)
    return violations


def _wrong_for_new_reader(records: Sequence[Record], written: Sequence[Record]) -> set[str]:
    violations: set[str] = set()
    offsets = {record.offset for record in records}
    for key, last in last_of_keys(written).items():
        if last.offset in offsets:
            continue
        if last.value is not None:
            violations.add(LOST_VALUE)
        elif any(record.key == key and record.value is not None for record in records):
            violations.add(UNDELETED)
    return violations


def wrong_for_reader(
    reader: Reader, log: Log, written: Sequence[Record], *, now_ms: int, delete_retention_ms: int
) -> set[str]:
    """Return the names of the violations in the records that a reader got; none before the reader is at the end.

    There are none either once delete.retention.ms has passed since the reader began: tombstones may be removed then. A
    reader that began when a range was cleaned, and reaches it at the moment when its tombstones are removed, is late.
    """
    if reader.position < log.end_offset or reader.began_at_ms + delete_retention_ms <= now_ms:
        return set()
    violations: set[str] = set()
    delivered = last_of_keys(reader.latest)
    for key, last in last_of_keys(written).items():
        record = delivered.get(key)
        if last.value is not None and record != last:
            violations.add(LOST_VALUE)
        elif last.value is None and record is not None and record.value is not None:
            violations.add(MISSED_TOMBSTONE)
    return violations
