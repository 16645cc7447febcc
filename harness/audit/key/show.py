"""The result of ``harness audit key``, for people and as JSON: what is served and why, and when it may be removed.

Sources: ``Cleaner.buildOffsetMap`` and ``shouldRetainRecord`` (a record goes once a pass has mapped a later record of
its key; aborted records are not mapped), ``RecordBatch.deleteHorizonMs`` and KIP-534 (the first pass over a tombstone
sets its delete horizon, a pass after the horizon removes it), ``LogCleanerManager.cleanableOffsets``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from harness.audit.cleaning import problem_of
from harness.audit.key.log import KeyRecord, KeyReplica
from harness.audit.key.read import KeyPartition
from harness.audit.removal_settings import RemovalSettings
from harness.broker_files.internal_topics.phrases import state, subject
from harness.broker_files.metadata_log.history import NO_LEADER
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.escape import escape, shortened
from harness.host.clock import duration_text, time_text
from harness.json_codec import to_json
from harness.judge.finding import name_of
from harness.terminal import Terminal

SHOWN: Final = 20
"""The most records of a replica that are printed as text."""
WIDTH: Final = 10
WHY: Final = (
    "no cleaner may cause this. A replica that was down, or was being added, while a delete or a marker was written and"
    " removed again never gets it: it serves the deleted value, misjudges the transaction, or still has it open"
)
NO_DISK: Final = (
    "dirty offsets, segments and dirty ratios are not known without the disks: give copies of them by --broker ID=DIR"
)
NO_LAG_MS: Final = 1 << 62
"""The default of ``max.compaction.lag.ms`` is above this."""


@dataclass(frozen=True)
class Explanation:
    """``served``: to read_committed consumers, and why. ``records``: a phrase by offset. ``cleaner``: sentences."""

    served: str
    records: Mapping[int, str]
    cleaner: tuple[str, ...]


def exit_code(partitions: Sequence[KeyPartition]) -> int:
    """Return 1 for a difference that is certain, 2 where one is possible, 0 where the replicas agree."""
    if any(partition.comparison.differences for partition in partitions):
        return EXIT_ANOMALY
    is_unknown = not partitions or any(partition.comparison.doubts for partition in partitions)
    return EXIT_UNKNOWN if is_unknown else EXIT_CLEAN


def key_json(partitions: Sequence[KeyPartition]) -> list[dict[str, Any]]:
    """Return the partitions, each with its replicas. Values are as in ``verdict.json``."""
    return [
        {
            "partition": partition.place[1],
            "leader": partition.leader,
            **asdict(partition.comparison),
            "replicas": [_replica_json(replica, _explained(replica, partition)) for replica in partition.replicas],
        }
        for partition in partitions
    ]


def _replica_json(replica: KeyReplica, why: Explanation) -> dict[str, Any]:
    log = replica.log
    return {
        "broker": replica.broker,
        "log_start": log.log_start,
        "log_end": log.end,
        "high_watermark": replica.high_watermark,
        "last_stable_offset": replica.last_stable,
        "served": why.served,
        "records_in_log": log.count,
        "records": [{**to_json(record), "cleaning": why.records[record.offset]} for record in log.records],
        "cleaner": list(why.cleaner),
    }


def show_key(out: Terminal, key: bytes, partitions: Sequence[KeyPartition], live: str) -> None:
    """Print the partitions that have the key, or differ. ``live``: the audit that names the anomaly."""
    for partition in partitions:
        if not any(replica.log.count for replica in partition.replicas) and not partition.comparison.doubts:
            out.line(f"{name_of(partition.place)}: no replica has a record of the key")
            continue
        about = subject(partition.place[0], key)
        leader = "" if partition.leader is None else f"; consumers read broker {partition.leader}, its leader"
        leader = "; no consumer reads it, as it has no leader" if partition.leader == NO_LEADER else leader
        out.line(f"{name_of(partition.place)}: key {escape(key) if about is None else about.text}{leader}")
        for replica in partition.replicas:
            _show_replica(out, key, replica, partition)
        differences, doubts = partition.comparison.differences, partition.comparison.doubts
        for text in (*(f"DIFFERENT: {text}" for text in differences), *(f"UNDECIDED: {text}" for text in doubts)):
            out.line(text)
        if differences:
            out.line(WHY)
        out.line(f"next: {live}" if differences or doubts else "the replicas agree on what they serve for the key")
        if all(replica.work is None for replica in partition.replicas):
            out.line(f"note: {NO_DISK}")


def _show_replica(out: Terminal, key: bytes, replica: KeyReplica, partition: KeyPartition) -> None:
    log, why = replica.log, _explained(replica, partition)
    out.line(
        f"broker {replica.broker}: log start {log.log_start}, last stable {replica.last_stable},"
        f" high watermark {replica.high_watermark}, log end {log.end}"
    )
    records = list(log.records)[-SHOWN:]
    rows = [(f"  {r.offset}", f"{_record(r, key, partition)}; {why.records[r.offset]}") for r in records]
    if log.count > len(records):
        rows.insert(0, ("  …", f"{log.count - len(records):,} older records of the key"))
    rows.append(("  serves", why.served))
    rows += [("  cleaner", text) for text in why.cleaner]
    out.fields(rows, width=WIDTH)


def _record(record: KeyRecord, key: bytes, partition: KeyPartition) -> str:
    about = subject(partition.place[0], key)
    value = f"value {shortened(record.value)}" if about is None else state(partition.place[0], about, record.value)
    text = f"{time_text(record.timestamp_ms)}  {'delete' if record.value is None else value}"
    if record.producer_id is None:
        return text
    name = partition.ids.get(record.producer_id)
    who = f"producer {record.producer_id}" if name is None else f"{escape(name)}, producer {record.producer_id}"
    by = "" if record.ended_at is None else f" by the marker at {record.ended_at}"
    return f"{text}, {record.outcome}{by} ({who})"


def _explained(replica: KeyReplica, partition: KeyPartition) -> Explanation:
    now_ms = partition.now_ms if replica.work is None else replica.work.now_ms
    settings, ids, later, phrases = partition.settings, partition.ids, None, {}
    for record in reversed(replica.log.records):
        phrases[record.offset] = _fate(record, later, replica, settings, now_ms)
        later = record if record.outcome == COMMITTED else later
    return Explanation(_served(replica, ids), phrases, tuple(_cleaner(replica, settings, ids)))


def _served(replica: KeyReplica, ids: Mapping[int, str]) -> str:
    log, end = replica.log, min(replica.last_stable, replica.high_watermark)
    served, newest = replica.newest(end), log.records[-1] if log.records else None
    state = (
        f"nothing: its log has no committed record of the key from offset {log.log_start} to {end}"
        if served is None
        else f"{'a delete, so no value' if served.value is None else 'the value'} (offset {served.offset})"
    )
    if newest is None or newest is served:
        return state
    who = f"producer {newest.producer_id}{_named(newest.producer_id, ids)}"
    if newest.outcome == ABORTED:
        why = f"the marker at {newest.ended_at} aborted the transaction of {who}"
    elif newest.outcome == OPEN:
        why = f"the transaction of {who} is open on this replica"
    elif newest.offset >= replica.high_watermark:
        why = f"the high watermark is {replica.high_watermark}"
    else:
        why = f"read_committed consumers stop at {replica.last_stable}, where {_opener(replica, ids)}"
    return f"{state}; not the record at {newest.offset}: {why}"


def _fate(
    record: KeyRecord, later: KeyRecord | None, replica: KeyReplica, settings: RemovalSettings, now_ms: int | None
) -> str:
    """Return when cleaning may remove a record; ``later``: the next committed record of the key."""
    if record.outcome == OPEN:
        return "stays while its transaction is open"
    if record.outcome == ABORTED:
        return f"goes with the first pass beyond its marker{_held(replica, record.ended_at or 0, settings, now_ms)}"
    if later is not None:
        held = _held(replica, later.offset, settings, now_ms, later.timestamp_ms)
        return f"superseded: goes with the first pass beyond {later.offset}{held}"
    if record.value is not None:
        return "stays: the newest value of its key"
    if record.horizon_ms is None:
        retention = settings.delete_retention_ms
        wait = "delete.retention.ms" if retention is None else duration_text(retention / 1000)
        held = _held(replica, record.offset, settings, now_ms, record.timestamp_ms)
        return f"no pass has reached this delete: the first pass sets its horizon, a pass {wait} later removes it{held}"
    is_over = now_ms is not None and record.horizon_ms <= now_ms
    return (
        f"a pass has set the delete horizon {time_text(record.horizon_ms)}: the first pass after that removes it"
        f"{', which is the next pass; a pass needs new dirty records' if is_over else ''}"
    )


def _held(
    replica: KeyReplica, offset: int, settings: RemovalSettings, now_ms: int | None, written_ms: int | None = None
) -> str:
    """Return why no pass may reach an offset now; nothing where that is not known."""
    if replica.last_stable <= offset:
        return f". It is held: the last stable offset is {replica.last_stable}"
    if replica.work is not None and replica.work.end <= offset:
        return f". It is held: {replica.work.held_by} begins at {replica.work.end}"
    lag_ms = settings.min_compaction_lag_ms or 0
    if now_ms is not None and written_ms is not None and lag_ms and written_ms + lag_ms > now_ms:
        return f". It is held until {time_text(written_ms + lag_ms)} by min.compaction.lag.ms"
    return ""


def _cleaner(replica: KeyReplica, settings: RemovalSettings, ids: Mapping[int, str]) -> Iterator[str]:
    log, work, lag_ms = replica.log, replica.work, settings.max_compaction_lag_ms
    if log.opened and min(log.opened.values()) <= replica.last_stable < replica.high_watermark:
        yield f"no pass goes beyond {replica.last_stable}, where {_opener(replica, ids)}"
    threshold = settings.min_cleanable_dirty_ratio
    begins = f"a pass begins above min.cleanable.dirty.ratio {'(unknown)' if threshold is None else threshold}"
    if threshold == 1:
        begins = "min.cleanable.dirty.ratio is 1, above which no pass begins"
    if lag_ms is not None and lag_ms < NO_LAG_MS:
        begins += f", or {duration_text(lag_ms / 1000)} after the oldest dirty record (max.compaction.lag.ms)"
    if work is None:
        yield begins
        committed = [record.offset for record in log.records if record.outcome == COMMITTED]
        reached = [record.offset for record in log.records if record.horizon_ms is not None]
        if reached:
            yield f"a pass has reached offset {max(reached)}, as it has a delete horizon"
        if len(committed) > 1:
            yield f"no pass has mapped offset {committed[1]}, as {committed[0]} is still there"
        return
    yield (
        f"dirty from {work.dirty_offset} on, a pass may go up to {work.end} ({work.held_by}); dirty ratio"
        f" {work.ratio:.2f}; {begins}"
    )
    if problem := problem_of(work):
        yield problem


def _opener(replica: KeyReplica, ids: Mapping[int, str]) -> str:
    producer, offset = min(replica.log.opened.items(), key=lambda item: item[1], default=(None, None))
    if producer is None:
        return "another transaction is open"
    return f"the transaction of producer {producer}{_named(producer, ids)} is open from {offset} on"


def _named(producer_id: int | None, ids: Mapping[int, str]) -> str:
    name = None if producer_id is None else ids.get(producer_id)
    return "" if name is None else f" (transactional id {escape(name)})"
