"""The history of client operations: each line is an invocation, or its completion.

Fields of ``history.jsonl``, which may be absent:

    index      int     order of the line
    type       str     invoke | ok | fail | info (may or may not have happened)
    f          str     produce | begin | commit | abort | init | poll | fetch offsets | consume; of the nemesis: leave |
                       expose | come back | power failure | crash in cleaning
    op         int     pairs an invocation with its completion
    time_ms    int     wall clock, milliseconds since the epoch
    process    str     a client, whose operations do not overlap, except produces
    part       str     payload | filler | reader | nemesis
    phase      str     before | outage | late | after
    transactional_id   str
    txn        int     the nth transaction of that transactional id, from 1
    topic, partition, offset
    key, value str     value absent and tombstone true for a delete
    key_base64 str     instead of key, for a key that is not text (of a committed offset)
    error      str     fail and info only
    records    list    poll only: [{offset, key, value or null}, ...] as delivered
    position   int     poll only: the reader's position at the end
    broker     int     poll: the leader that served it; power failure, crash in cleaning: the broker
    brokers    list    nemesis only: the affected brokers
    cut        list    power failure only: unsynced data of the broker: [{file, from_bytes, to_bytes}, ...]; of a
                       segment with topic, partition, first_offset, last_offset, records, next_segment (if one
                       follows), and the previous isr
    files      list    crash in cleaning only: [{file, bytes}, ...] that existed at the kill
"""

import base64
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from harness.errors import UsageError
from harness.host.clock import Clock

FETCH_OFFSETS, CONSUME = "fetch offsets", "consume"
"""Operations of groups on their coordinators; `workloads.group_consumers` describes their additional fields."""
HEADER_TXN = "txn"
"""Record header: ``<transactional id>/<txn>``."""
HEADER_OP = "op"
"""Record header: the producing operation's number."""


def key_fields(key: str | bytes) -> dict[str, str]:
    """Return the history field for a record's key."""
    return {"key": key} if isinstance(key, str) else {"key_base64": base64.b64encode(key).decode()}


def key_of(event: Mapping[str, Any]) -> bytes | None:
    """Return the key in an event, or None. Raises `ValueError` for an invalid key."""
    try:
        if "key_base64" in event:
            return base64.b64decode(event["key_base64"], validate=True)
        return event["key"].encode() if "key" in event else None
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON documents of a file's lines, and remove an incomplete last line from the file.

    Raises `UsageError` for any other malformed line, and if the file cannot be read.
    """
    lines: list[dict[str, Any]] = []
    try:
        text = path.read_text()
        complete = text[: text.rfind("\n") + 1]
        if complete != text:
            path.write_text(complete)
        for line in complete.splitlines():
            lines.append(json.loads(line))  # noqa: PERF401  (their number locates a malformed line)
    except OSError as error:
        raise UsageError(f"the run folder is damaged: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the run folder is damaged: {path} line {len(lines) + 1}: {error}") from error
    return lines


class History:
    """The append-only log of operation events that all clients of a run share. Thread-safe."""

    def __init__(self, path: Path, clock: Clock, *, resumed: bool = False) -> None:
        """Open the file for writing; it must not exist, unless the run is ``resumed``."""
        self.past = read_lines(path) if resumed else []
        """The earlier events of a resumed run."""
        self._file: IO[str] = path.open("a" if resumed else "x", buffering=1)
        self._clock = clock
        self._lock = threading.Lock()
        self._index = len(self.past)
        self._op = max((event["op"] for event in self.past), default=0)

    def last_txn(self, transactional_id: str | None) -> int:
        """Return the number of the last transaction that began before the run was resumed, from 1, or 0."""
        begun = (e["txn"] for e in self.past if e["f"] == "begin" and e["transactional_id"] == transactional_id)
        return max(begun, default=0)

    def invoke(self, **fields: Any) -> dict[str, Any]:
        """Record an invocation and return its fields, for `complete`."""
        with self._lock:
            self._op += 1
            event = {**fields, "op": self._op}
            self._write("invoke", event)
        return event

    def complete(self, kind: str, event: dict[str, Any], **more: Any) -> None:
        """Record the completion of an invocation: ``ok``, ``fail`` or ``info``."""
        with self._lock:
            self._write(kind, {**event, **more})

    def note(self, f: str, *, process: str, phase: str, **observed: Any) -> None:
        """Record an observation, whose part is its process, as an operation that succeeded."""
        self.complete("ok", self.invoke(f=f, process=process, part=process, phase=phase), **observed)

    def close(self) -> None:
        """Close the file; nothing more can be recorded."""
        self._file.close()

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        line = {"index": self._index, "type": kind, "time_ms": self._clock.time_ms(), **event}
        self._index += 1
        self._file.write(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")
