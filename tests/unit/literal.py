"""Run folders from literal histories: a few batches a replica, written as brokers and the harness write them.

A log is a tuple of entries, a replica is a log and what its broker says of it::

    T1 = Txn(5, "t/1")
    log = (put(0, "K", T1), commit(1, T1), put(2, "L"))
    History("stuck", wrote=log, after=(replica(1, *log), replica(2, put(0, "K", T1), put(2, "L"))))

Omitted values agree with the log: high watermark, last stable offset, open transactions, aborted transactions
(``.txnindex``), served batches, the last observation, and what a reader of broker 2 is delivered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

from harness.broker_files.segments.batches import Record, batch_digest, iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import ABORT, COMMIT, marker_record
from harness.broker_files.side_files.producer_state import AbortedTxn, encode_txnindex
from harness.run_folder.history import HEADER_TXN
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN, BROKER_UUID, RunFolder
from harness.systems.redpanda import RAW_FOLDER

TOPIC = "t"
READER = 2
"""The broker that the read_committed consumer reads."""
LAST_LOOK_MS = 1_000_000
PUT, EMPTIED, EMPTIED_MARKER = "put", "emptied", "emptied marker"
MARKERS = (COMMIT, ABORT)


@dataclass(frozen=True)
class Txn:
    """The nth transaction of a transactional id, ``id/n`` in record headers."""

    producer_id: int
    name: str
    epoch: int = 0


@dataclass(frozen=True)
class Entry:
    """One batch, of one record or none; ``following``: of more. ``part``: which part of the run wrote it."""

    kind: str
    offset: int
    txn: Txn | None = None
    key: str | None = ""
    value: str | None = None
    at_ms: int = 0
    horizon_ms: int | None = None
    plain: bool = False
    leader_epoch: int = 0
    part: str = "payload"
    following: tuple[Entry, ...] = ()

    @property
    def records(self) -> tuple[Entry, ...]:
        """The record, and the records that follow it in its batch."""
        return (self, *self.following)


@dataclass(frozen=True)
class Replica:
    """A broker's log and what it says of it; None: what the log says.

    ``led_by``: leader and leader epoch, by the metadata. ``redpanda``: its files have another form, and it says less.
    ``watched=False``: the observer never saw it. ``directory``: id of its log directory; None: it has none.
    """

    broker: int
    log: tuple[Entry, ...]
    up: bool = True
    log_start: int = 0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    open: tuple[Txn, ...] | None = None
    index: tuple[AbortedTxn, ...] | None = None
    served: tuple[Entry, ...] | None = None
    last_seen: tuple[Entry, ...] | None = None
    cleaned_to: int = 0
    directory: str | None = ""
    led_by: tuple[int, int] | None = None
    redpanda: bool = False
    watched: bool = True

    @property
    def log_end(self) -> int:
        """The offset after the last entry."""
        return max((entry.records[-1].offset + 1 for entry in self.log), default=self.log_start)


@dataclass(frozen=True)
class Seen:
    """A line of the observer: the record that appeared or was removed, and the offsets of the replica then."""

    broker: int
    what: str
    entry: Entry
    at_ms: int
    log_start: int = 0
    high_watermark: int = 100
    log_end: int = 100


@dataclass(frozen=True)
class History:
    """One run: what the client did in each phase, every broker at both snapshots, what was seen meanwhile.

    ``in_doubt``: transactions whose end was not acknowledged; ``lost``: offsets of records that were not.
    ``delivered``: to the reader, if not what the log says; ``answered=False``: it had no answer. ``settings``: of the
    topic, if the manifest has them. ``client=False``: nothing is known of clients; ``overlapping``: all began at once.
    """

    name: str
    after: tuple[Replica, ...]
    wrote: tuple[Entry, ...] = ()
    outage: tuple[Entry, ...] = ()
    late: tuple[Entry, ...] = ()
    before: tuple[Replica, ...] = ()
    seen: tuple[Seen, ...] = ()
    in_doubt: tuple[Txn, ...] = ()
    lost: tuple[int, ...] = ()
    client: bool = True
    delivered: tuple[int, ...] | None = None
    answered: bool = True
    settings: Mapping[str, str] | None = None
    overlapping: bool = False


def put(offset: int, key: str | None, txn: Txn | None = None, *, at_ms: int = 0) -> Entry:
    return Entry(PUT, offset, txn, key, f"value of {offset}", at_ms)


def delete(offset: int, key: str, txn: Txn | None = None, *, at_ms: int = 0, horizon_ms: int | None = None) -> Entry:
    return Entry(PUT, offset, txn, key, None, at_ms, horizon_ms)


def together(first: Entry, *following: Entry) -> Entry:
    return replace(first, following=following)


def by_filler(entry: Entry) -> Entry:
    return replace(entry, part="filler")


def commit(offset: int, txn: Txn, *, horizon_ms: int | None = None) -> Entry:
    return Entry(COMMIT, offset, txn, horizon_ms=horizon_ms)


def untied(entry: Entry) -> Entry:
    """Return the batch without its transactional bit, as Redpanda's compaction leaves committed batches."""
    return replace(entry, plain=True)


def led(epoch: int, *log: Entry) -> tuple[Entry, ...]:
    """Return batches as the leader of that epoch has written them."""
    return tuple(replace(entry, leader_epoch=epoch) for entry in log)


def abort(offset: int, txn: Txn) -> Entry:
    return Entry(ABORT, offset, txn)


def emptied(offset: int, txn: Txn | None = None) -> Entry:
    """Return what compaction leaves of a producer's last data batch."""
    return Entry(EMPTIED, offset, txn)


def emptied_marker(offset: int, txn: Txn) -> Entry:
    """Return what compaction leaves of a producer's last marker: no type any more."""
    return Entry(EMPTIED_MARKER, offset, txn)


def replica(broker: int, *log: Entry, **fields: Any) -> Replica:
    """Return a replica that is up; ``fields``: of `Replica`."""
    return Replica(broker, log, **fields)


def absent(broker: int, *log: Entry, **fields: Any) -> Replica:
    """Return a replica whose broker is down: only its files tell, and its checkpoints may lag."""
    return Replica(broker, log, up=False, **{"high_watermark": 0, **fields})


def aborted(txn: Txn, first_offset: int, marker_offset: int) -> AbortedTxn:
    """Return a ``.txnindex`` entry."""
    return AbortedTxn(txn.producer_id, first_offset, marker_offset, marker_offset + 1)


def appeared(broker: int, entry: Entry, *, at_ms: int = 100, **fields: int) -> Seen:
    """Return that the observer saw a batch for the first time."""
    return Seen(broker, "appeared", entry, at_ms, **fields)


def removed(broker: int, entry: Entry, *, at_ms: int = 200, **fields: int) -> Seen:
    """Return that the observer saw it gone."""
    return Seen(broker, "removed", entry, at_ms, **fields)


def write_run(top: Path, history: History) -> RunFolder:
    """Write one run folder below ``top`` and return it."""
    folder = RunFolder(top / history.name)
    folder.path.mkdir()
    for snapshot, replicas in ((BEFORE_RETURN, history.before), (AFTER_REJOIN, history.after)):
        replicated = min((r.log_end for r in replicas if r.up), default=0)
        for replica in replicas:
            _write_replica(folder, snapshot, replica, replicated)
    folder.write_lines(folder.history_path, _client_events(history))
    folder.write_lines(folder.observations_path, _observations(history))
    settings = {} if history.settings is None else {"topic_settings": dict(history.settings)}
    folder.write_json(folder.manifest_path, settings)
    return folder


def _write_replica(folder: RunFolder, snapshot: str, replica: Replica, replicated: int) -> None:
    disk = folder.broker_snapshot(replica.broker, snapshot)
    partition = disk / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    high_watermark = replicated if replica.high_watermark is None else replica.high_watermark
    opened, ended = transactions(replica.log)
    index = [aborted(txn, first, last) for txn, kind, first, last in ended if kind == ABORT]
    directory = f"directory-of-{replica.broker}" if replica.directory == "" else replica.directory
    if replica.redpanda:
        aside = partition / RAW_FOLDER
        aside.mkdir()
        (aside / "0-1-v1.log").write_bytes(b"of another form")
        (disk / BROKER_UUID).write_text(f"{directory}\n")
    if not (replica.redpanda and replica.up):
        (partition / f"{0:020}.log").write_bytes(encode(replica.log))
    if not replica.redpanda:
        _write_side_files(disk, replica, high_watermark, index, directory)
    if not replica.up:
        return
    served = folder.fetched_snapshot(replica.broker, snapshot) / f"{TOPIC}-0"
    served.mkdir(parents=True)
    visible = tuple(entry for entry in replica.log if entry.offset >= replica.log_start)
    (served / "batches.bin").write_bytes(encode(visible if replica.served is None else replica.served))
    is_open = opened if replica.open is None else [(txn, 0) for txn in replica.open]
    state = {
        "log_start": replica.log_start,
        "high_watermark": high_watermark,
        "last_stable_offset": _stable(replica, high_watermark),
        "aborted": [[entry.producer_id, entry.first_offset] for entry in index],
        "open": None if replica.redpanda else [[txn.producer_id, txn.epoch, first] for txn, first in is_open],
        **({"compaction": {"cleaner_offset": replica.cleaned_to}} if replica.redpanda else {}),
        **({} if replica.led_by is None else dict(zip(("leader", "leader_epoch"), replica.led_by, strict=True))),
    }
    (served / "state.json").write_text(json.dumps(state) + "\n")


def _write_side_files(
    disk: Path, replica: Replica, high_watermark: int, index: Sequence[AbortedTxn], directory: str | None
) -> None:
    (disk / f"{TOPIC}-0" / f"{0:020}.txnindex").write_bytes(
        encode_txnindex(index if replica.index is None else replica.index)
    )
    for name, offset in (
        ("replication-offset", high_watermark),
        ("cleaner-offset", replica.cleaned_to),
        ("log-start-offset", replica.log_start),
    ):
        (disk / f"{name}-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {offset}\n")
    directory_id = "" if directory is None else f"directory.id={directory}\n"
    (disk / "meta.properties").write_text(f"#\nnode.id={replica.broker}\n{directory_id}version=1\n")


def transactions(log: Sequence[Entry]) -> tuple[list[tuple[Txn, int]], list[tuple[Txn, str, int, int]]]:
    """Return (transaction, first offset) of what is open, (transaction, outcome, first, marker) of what has ended."""
    opened: dict[int, tuple[Txn, int]] = {}
    ended = []
    for entry in log:
        if entry.txn is None or entry.plain:
            continue
        if entry.kind in (PUT, EMPTIED):
            opened.setdefault(entry.txn.producer_id, (entry.txn, entry.offset))
        elif entry.kind in MARKERS and entry.txn.producer_id in opened:
            txn, first = opened.pop(entry.txn.producer_id)
            ended.append((txn, entry.kind, first, entry.offset))
    return list(opened.values()), ended


def _stable(replica: Replica, high_watermark: int) -> int:
    """Return the LSO: a transaction whose marker is not below the high watermark still holds it."""
    if replica.last_stable_offset is not None:
        return replica.last_stable_offset
    opened, ended = transactions(replica.log)
    unstable = [first for _, first in opened] + [first for _, _, first, last in ended if last >= high_watermark]
    return min([high_watermark, *unstable])


def _delivered(replica: Replica) -> list[Entry]:
    """Return what a read_committed consumer gets of a log, when it is replicated to its end."""
    opened, ended = transactions(replica.log)
    hidden = [(txn, first, last) for txn, kind, first, last in ended if kind == ABORT]
    end = min([replica.log_end, *(first for _, first in opened)])
    return [
        entry
        for batch in replica.log
        for entry in batch.records
        if entry.kind == PUT
        and replica.log_start <= entry.offset < end
        and not any(
            entry.txn and entry.txn.producer_id == txn.producer_id and first <= entry.offset <= last
            for txn, first, last in hidden
        )
    ]


def encode(log: Iterable[Entry]) -> bytes:
    return b"".join(_encode_entry(entry) for entry in log)


def _encode_entry(entry: Entry) -> bytes:
    txn, timestamp_ms = entry.txn, entry.at_ms or 1000 + entry.offset
    records = []
    if entry.kind in MARKERS:
        records = [marker_record(entry.offset, timestamp_ms, entry.kind)]
    elif entry.kind == PUT:
        headers = ((HEADER_TXN, txn.name.encode()),) if txn else ()
        for record in entry.records:
            value = None if record.value is None else record.value.encode()
            key = None if record.key is None else record.key.encode()
            records.append(Record(record.offset, timestamp_ms, key, value, headers))
    return encode_batch(
        base_offset=entry.offset, records=records, max_timestamp_ms=timestamp_ms, leader_epoch=entry.leader_epoch,
        producer_id=txn.producer_id if txn else -1, producer_epoch=txn.epoch if txn else -1,
        is_transactional=txn is not None and not entry.plain, is_control=entry.kind in {*MARKERS, EMPTIED_MARKER},
        delete_horizon_ms=entry.horizon_ms,
    )  # fmt: skip


def _client_events(history: History) -> Iterable[dict[str, Any]]:
    """Yield the client's events, and one poll of the reader."""
    events: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    if history.client:
        for phase, log in (("before", history.wrote), ("outage", history.outage), ("late", history.late)):
            events += [_operation(history, phase, entry) for batch in log for entry in batch.records]
        read = next((replica for replica in history.after if replica.broker == READER and replica.up), None)
        if read is not None:
            actual = [entry.offset for entry in _delivered(read)] if history.delivered is None else history.delivered
            poll = {"f": "poll", "part": "reader", "phase": "after", "topic": TOPIC, "partition": 0, "broker": READER}
            records = [{"offset": offset, "key": "?", "value": "?"} for offset in actual]
            got = {"records": records, "position": read.log_end}
            events.append(("ok", poll, got) if history.answered else ("info", poll, {}))
    lines: list[dict[str, Any]] = []
    for number, (end, invocation, more) in enumerate(events, 1):
        event = {"time_ms": number, "op": number, **invocation}
        lines += [{"type": "invoke", **event}, {"type": end, **event, **more, "time_ms": event["time_ms"] + 1}]
    if history.overlapping:
        lines = [*lines[::2], *lines[1::2]]
    for index, line in enumerate(lines):
        yield {"index": index, **line}


def _operation(history: History, phase: str, entry: Entry) -> tuple[str, dict[str, Any], dict[str, Any]]:
    writer: dict[str, Any] = {"process": "p", "part": entry.part, "phase": phase}
    if entry.at_ms:
        writer["time_ms"] = entry.at_ms
    if entry.txn is not None:
        transactional_id, _, number = entry.txn.name.rpartition("/")
        writer |= {"transactional_id": transactional_id, "txn": int(number)}
    if entry.kind in MARKERS:
        return "info" if entry.txn in history.in_doubt else "ok", {"f": entry.kind, **writer}, {}
    record: dict[str, Any] = {"topic": TOPIC, "partition": 0, "key": entry.key, "tombstone": entry.value is None}
    if entry.value is not None:
        record["value"] = entry.value
    is_lost = entry.offset in history.lost
    return (
        "info" if is_lost else "ok", {"f": "produce", **writer, **record}, {} if is_lost else {"offset": entry.offset},
    )  # fmt: skip


def _observations(history: History) -> Iterable[dict[str, Any]]:
    """Yield what was seen, then every replica's last look, which has its whole log."""
    for sighting in history.seen:
        entry = sighting.entry
        kind = {PUT: "tombstone" if entry.value is None else "value", EMPTIED: "empty", EMPTIED_MARKER: "empty"}.get(
            entry.kind, entry.kind
        )
        noted: dict[str, Any] = {"offset": entry.offset, "kind": kind}
        if sighting.what == "appeared":
            noted["producer_id"] = entry.txn.producer_id if entry.txn else -1
        looked = {name: getattr(sighting, name) for name in ("log_start", "high_watermark", "log_end")}
        yield {**_look(sighting.broker, (), sighting.at_ms), **looked, sighting.what: [noted]}
    for replica in history.after:
        if replica.up and replica.watched:
            log = replica.log if replica.last_seen is None else replica.last_seen
            yield _look(replica.broker, [e for e in log if e.offset >= replica.log_start], LAST_LOOK_MS)


def _look(broker: int, log: Sequence[Entry], at_ms: int) -> dict[str, Any]:
    return {
        "time_ms": at_ms, "broker": broker, "topic": TOPIC, "partition": 0, "batches": len(log), "digest": digest(log),
        "appeared": [], "removed": [],
    }  # fmt: skip


def digest(log: Sequence[Entry]) -> int:
    batches = iter_batches(encode(log), source="literal")
    return reduce(xor, (batch_digest(batch.base_offset, batch.crc) for batch in batches), 0)
