"""The history of client operations: each line is an invocation, or its completion.

Fields of ``history.jsonl``, which may be absent:

    index, op      order of the line, and a number that pairs an invocation with its completion
    type           invoke | ok | fail | info (may or may not have happened)
    f              produce | begin | commit | abort | init | poll | fetch offsets | consume; of the nemesis: leave |
                   expose | come back | power failure | crash in cleaning; of a soak's round also inject and heal
    time_ms        wall clock, milliseconds since the epoch
    process, part  a client, whose operations do not overlap, except produces; payload | filler | reader | nemesis
    phase          before | outage | late | after
    transactional_id, txn   txn: the nth transaction of that transactional id, from 1
    topic, partition, offset
    key, value     value absent and tombstone true for a delete; key_base64 instead of a key that is not text
    error          fail and info only
    records        poll only: [{offset, key, value or null}, ...] as delivered; position: the reader's at the end
    broker, brokers         the leader that served a poll, or the affected broker; nemesis only: the affected brokers
    cut            power failure only: unsynced data of the broker: [{file, from_bytes, to_bytes}, ...]; of a segment
                   with topic, partition, first_offset, last_offset, records, next_segment (if one follows), and the
                   previous isr
    files          crash in cleaning only: [{file, bytes}, ...] that existed at the kill
"""

import base64
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from harness.errors import UsageError
from harness.host.clock import Clock

INVOKE, OK, FAIL = "invoke", "ok", "fail"
"""Types of events."""
FETCH_OFFSETS, CONSUME = "fetch offsets", "consume"
"""Operations of groups on their coordinators; `workloads.group_consumers` describes their additional fields."""
HEADER_TXN = "txn"
"""Record header: ``<transactional id>/<txn>``."""
HEADER_OP = "op"
"""Record header: the producing operation's number."""
DELETE_RECORDS, RECREATE = "delete records", "recreate topic"
"""Operations of administrators. The former has ``before``, the offset up to which records go."""
INJECT, HEAL = "inject", "heal"
"""Verbs of the events of a soak's faults, before the names of faults in ``f``."""


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
        content = path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        if complete != content:
            os.truncate(path, len(complete))
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
            self._write(INVOKE, event)
        return event

    def complete(self, kind: str, event: dict[str, Any], **more: Any) -> None:
        """Record the completion of an invocation: ``ok``, ``fail`` or ``info``."""
        with self._lock:
            self._write(kind, {**event, **more})

    def note(self, f: str, *, process: str, phase: str, **observed: Any) -> None:
        """Record an observation, whose part is its process, as an operation that succeeded."""
        self.complete(OK, self.invoke(f=f, process=process, part=process, phase=phase), **observed)

    def close(self) -> None:
        """Close the file; nothing more can be recorded."""
        self._file.close()

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        line = {"index": self._index, "type": kind, "time_ms": self._clock.time_ms(), **event}
        self._index += 1
        self._file.write(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")


@dataclass(frozen=True)
class FaultTimes:
    """A fault of a soak's round, in ms since the epoch: invocations and completions of its injection and its end."""

    fault: str
    broker: int
    inject_ms: int
    active_ms: int | None = None
    heal_ms: int | None = None
    healed_ms: int | None = None


_TIMES: Final = {
    (INJECT, INVOKE): "inject_ms",
    (INJECT, OK): "active_ms",
    (HEAL, INVOKE): "heal_ms",
    (HEAL, OK): "healed_ms",
}


def fault_times(events: Iterable[Mapping[str, Any]]) -> list[FaultTimes]:
    """Return the faults in the order of their invocations, without ends of faults that never began."""
    faults: list[tuple[str, int, dict[str, int]]] = []
    active: dict[tuple[str, int], dict[str, int]] = {}
    for event in events:
        verb, _, fault = event["f"].partition(" ")
        name = _TIMES.get((verb, event["type"]))
        for broker in event["brokers"] if name else ():
            if name == "inject_ms" and (fault, broker) not in active:
                active[fault, broker] = {}
                faults.append((fault, broker, active[fault, broker]))
            if name and (times := active.get((fault, broker))) is not None:
                times.setdefault(name, event["time_ms"])
                if name == "healed_ms":
                    del active[fault, broker]
    return [FaultTimes(fault, broker, **times) for fault, broker, times in faults]
