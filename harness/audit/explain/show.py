"""The results of an audit that asks brokers and reads no data: as tables for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.audit.live.broker_reports import ReplicaStatuses
from harness.audit.live.exposure import Exposure, Level
from harness.audit.live.prefilter import Prefiltered
from harness.judge.finding import name_of
from harness.terminal import Table, styled

if TYPE_CHECKING:
    from rich.text import Text


STYLES = {Level.OK: "green", Level.AT_RISK: "yellow", Level.TOO_LATE: "red"}
UNKNOWN = "?"


def replica_table(statuses: ReplicaStatuses) -> Table:
    """Return a table of the status of every replica."""
    names = ("partition", "broker", "log start", "last stable", "high watermark", "log end", "open transactions")
    rows = []
    for broker, tp, status in statuses.in_order:
        opened = (f"producer {t.producer_id} from {t.first_offset}" for t in status.open or ())
        transactions = UNKNOWN if status.open is None else ", ".join(opened)
        log_end = UNKNOWN if status.log_end is None else status.log_end
        offsets = map(str, (broker, status.log_start, status.last_stable_offset, status.high_watermark, log_end))
        rows.append((name_of(tp), *offsets, transactions))
    return Table(names, rows)


def exposure_table(exposure: Exposure) -> Table:
    """Return a table of every topic, each with its exposed replicas; the worst first."""
    rows: list[tuple[str, Text, str]] = []
    for topic in sorted(exposure.topics, key=lambda topic: (-topic.level, topic.topic)):
        rows.append((topic.topic, _styled_level(topic.level), topic.sentence))
        for replica in sorted(topic.replicas, key=lambda replica: (-replica.level, replica.partition, replica.broker)):
            name = f"  {replica.topic}-{replica.partition}"
            rows.append((name, _styled_level(replica.level), replica.sentence))
    return Table(("topic", "level", "exposure"), rows)


def prefiltered_json(prefiltered: Prefiltered) -> dict[str, Any]:
    """Return ``{suspicions, replicas, notes}``; offsets, and null where a broker does not report them."""
    return {
        "suspicions": [asdict(suspicion, dict_factory=_json_fields) for suspicion in prefiltered.suspicions],
        "replicas": [
            {"broker": broker, "topic": topic, "partition": partition, **asdict(status, dict_factory=_json_fields)}
            for (broker, (topic, partition)), status in sorted(prefiltered.statuses.replicas.items())
        ],
        "notes": list(prefiltered.notes),
    }


def exposure_json(exposure: Exposure) -> dict[str, Any]:
    """Return ``{level, topics, notes}``; levels by name, times in milliseconds, null where they are unknown."""
    return {"level": exposure.level.label, **asdict(exposure, dict_factory=_json_fields)}


def _styled_level(level: Level) -> Text:
    return styled(level.label, STYLES[level])


def _json_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: value.label if isinstance(value, Level) else sorted(value) if isinstance(value, frozenset) else value
        for name, value in fields
    }
