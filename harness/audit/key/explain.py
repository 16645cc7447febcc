"""Sentences on one key of a replica: what is served and why, and when cleaning may remove each record.

Sources: ``Cleaner.buildOffsetMap`` and ``shouldRetainRecord`` (a record goes once a pass has mapped a later record of
its key; aborted records are not mapped), ``RecordBatch.deleteHorizonMs`` and KIP-534 (the first pass over a tombstone
sets its delete horizon, a pass after the horizon removes it), ``LogCleanerManager.cleanableOffsets``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from checkers.replay.batch_outcomes import ABORTED, COMMITTED, OPEN
from harness.audit.cleaning import RemovalSettings, duration_text, problem_of, time_text
from harness.audit.key.log import KeyRecord, KeyReplica
from harness.escape import escape

NO_LAG_MS: Final = 1 << 62
"""The default of ``max.compaction.lag.ms`` is above this."""


@dataclass(frozen=True)
class Explanation:
    """``served``: to read_committed consumers, and why. ``records``: a phrase by offset. ``cleaner``: sentences."""

    served: str
    records: Mapping[int, str]
    cleaner: tuple[str, ...]


def explain(replica: KeyReplica, settings: RemovalSettings, ids: Mapping[int, str], now_ms: int | None) -> Explanation:
    """Explain a replica. ``ids``: transactional ids by producer. ``now_ms``: None for copies, whose time is unknown."""
    later: KeyRecord | None = None
    phrases: dict[int, str] = {}
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
