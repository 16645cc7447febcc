"""The result of ``harness audit key``, for people and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from harness.audit.cleaning import time_text
from harness.audit.key.explain import Explanation, explain
from harness.audit.key.log import KeyRecord, KeyReplica
from harness.audit.key.read import KeyPartition
from harness.broker_files.internal_topics.phrases import state, subject
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.escape import escape, shortened
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


def exit_code(partitions: Sequence[KeyPartition]) -> int:
    """Return 1 for a difference that is certain, 2 where one is possible, 0 where the replicas agree."""
    results = [partition.comparison for partition in partitions]
    if any(result.differences for result in results):
        return EXIT_ANOMALY
    return EXIT_UNKNOWN if any(result.doubts for result in results) or not results else EXIT_CLEAN


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


def _explained(replica: KeyReplica, partition: KeyPartition) -> Explanation:
    now_ms = partition.now_ms if replica.work is None else replica.work.now_ms
    return explain(replica, partition.settings, partition.ids, now_ms)


def show_key(out: Terminal, key: bytes, partitions: Sequence[KeyPartition], live: str) -> None:
    """Print the partitions that have the key, or differ. ``live``: the audit that names the anomaly."""
    for partition in partitions:
        if not any(replica.log.count for replica in partition.replicas) and not partition.comparison.doubts:
            out.line(f"{name_of(partition.place)}: no replica has a record of the key")
            continue
        about = subject(partition.place[0], key)
        leader = "" if partition.leader is None else f"; consumers read broker {partition.leader}, its leader"
        out.line(f"{name_of(partition.place)}: key {escape(key) if about is None else about.text}{leader}")
        for replica in partition.replicas:
            _show_replica(out, key, replica, partition)
        differences, doubts = partition.comparison.differences, partition.comparison.doubts
        for word, texts in (("DIFFERENT", differences), ("UNDECIDED", doubts)):
            for text in texts:
                out.line(f"{word}: {text}")
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
