"""What the clients did, one event a line: an invocation, then its completion.

Event schema (``history.jsonl``), absent fields left out:

    index      int     order of the line
    type       str     invoke | ok | fail | info (may or may not have happened)
    f          str     produce | begin | commit | abort | init | poll | fetch offsets | consume; of the nemesis: leave |
                       expose | come back | power failure | crash in cleaning
    op         int     pairs an invocation with its completion
    time_ms    int     wall clock, milliseconds since the epoch
    process    str     one client, one operation at a time, except that produces overlap
    part       str     payload | filler | reader | nemesis
    phase      str     before | outage | late | after
    transactional_id   str
    txn        int     the nth transaction of that transactional id, from 1
    topic, partition, offset
    key, value str     value absent and tombstone true for a delete
    key_base64 str     instead of key, where the key is no text: of a committed offset
    error      str     fail and info only
    records    list    poll only: [{offset, key, value or null}, ...] as delivered
    position   int     poll only: where the reader stands at the end
    broker     int     poll: the leader that served it; power failure, crash in cleaning: the broker
    brokers    list    nemesis only: the brokers that it acts on
    cut        list    power failure only: what was not synced of the broker: [{file, from_bytes, to_bytes}, ...], of
                       a segment with topic, partition, first_offset, last_offset, records, next_segment where
                       one follows, and the isr before
    files      list    crash in cleaning only: [{file, bytes}, ...] that lay there at the kill
"""

from __future__ import annotations

import base64
import json
import threading
from typing import IO, TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.host.clock import Clock

FETCH_OFFSETS, CONSUME = "fetch offsets", "consume"
"""Operations of groups on their coordinators, with fields of their own: see `workloads.group_consumers`."""
HEADER_TXN = "txn"
"""Record header: ``<transactional id>/<txn>``."""
HEADER_OP = "op"
"""Record header: the producing operation's number."""


def key_fields(key: str | bytes) -> dict[str, str]:
    """Return the field that has a record's key."""
    return {"key": key} if isinstance(key, str) else {"key_base64": base64.b64encode(key).decode()}


def key_of(event: Mapping[str, Any]) -> bytes | None:
    """Return the key that `key_fields` wrote; None for an event without. Raises ValueError where it is no key."""
    try:
        if "key_base64" in event:
            return base64.b64decode(event["key_base64"], validate=True)
        return event["key"].encode() if "key" in event else None
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of one JSON document a line; cut off its last line where that was being written.

    Raises `UsageError` for any other line that is none, and where there is no such file.
    """
    lines: list[dict[str, Any]] = []
    try:
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        for line in whole.splitlines():
            lines.append(json.loads(line))  # noqa: PERF401  (their number locates a line that is no JSON)
    except OSError as error:
        raise UsageError(f"the run folder is damaged: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the run folder is damaged: {path} line {len(lines) + 1}: {error}") from error
    return lines


class History:
    """An append-only log of operation events, shared by every client of a run. Thread-safe."""

    def __init__(self, path: Path, clock: Clock, *, resumed: bool = False) -> None:
        """Open the file for writing; it must not exist yet, unless the run is ``resumed``."""
        self.past = read_lines(path) if resumed else []
        """The events of a run that is resumed."""
        self._file: IO[str] = path.open("a" if resumed else "x", buffering=1)
        self._clock = clock
        self._lock = threading.Lock()
        self._index = len(self.past)
        self._op = max((event["op"] for event in self.past), default=0)

    def last_txn(self, transactional_id: str | None) -> int:
        """Return the number of the last transaction that was begun before the run was resumed, from 1; 0 for none."""
        begun = (e["txn"] for e in self.past if e["f"] == "begin" and e["transactional_id"] == transactional_id)
        return max(begun, default=0)

    def invoke(self, **fields: Any) -> dict[str, Any]:
        """Record an invocation and return its fields, to be given to `complete`."""
        with self._lock:
            self._op += 1
            event = {**fields, "op": self._op}
            self._write("invoke", event)
        return event

    def complete(self, kind: str, event: dict[str, Any], **more: Any) -> None:
        """Record how an invocation ended: ``ok``, ``fail`` or ``info``."""
        with self._lock:
            self._write(kind, {**event, **more})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        line = {"index": self._index, "type": kind, "time_ms": self._clock.time_ms(), **event}
        self._index += 1
        self._file.write(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")
