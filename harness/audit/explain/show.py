"""The results of an audit that asks brokers and reads no data: as tables for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.audit.live.exposure import Level
from harness.terminal import Table, styled

if TYPE_CHECKING:
    from rich.text import Text

    from harness.audit.live.exposure import Exposure
    from harness.audit.live.prefilter import Prefiltered
    from harness.audit.live.replica_status import ReplicaStatuses

STYLES = {Level.OK: "green", Level.AT_RISK: "yellow", Level.TOO_LATE: "red"}
UNKNOWN = "?"


def replica_table(statuses: ReplicaStatuses) -> Table:
    """Return a table of every replica that was seen."""
    names = ("partition", "broker", "log start", "last stable", "high watermark", "log end", "open transactions")
    rows = []
    for broker, (topic, partition), status in statuses.in_order:
        transactions = (
            UNKNOWN
            if status.open is None
            else ", ".join(f"producer {one.producer_id} from {one.first_offset}" for one in status.open)
        )
        end = UNKNOWN if status.log_end is None else str(status.log_end)
        offsets = map(str, (status.log_start, status.last_stable_offset, status.high_watermark))
        rows.append((f"{topic}-{partition}", str(broker), *offsets, end, transactions))
    return Table(names, rows)


def exposure_table(exposure: Exposure) -> Table:
    """Return a table of every topic, each with its replicas that are away, being added or frozen; the worst first."""
    rows: list[tuple[str, Text, str]] = []
    for topic in sorted(exposure.topics, key=lambda topic: (-topic.level, topic.topic)):
        rows.append((topic.topic, _styled_level(topic.level), topic.sentence))
        replicas = sorted(topic.replicas, key=lambda one: (-one.level, one.partition, one.broker))
        rows += [(f"  {one.topic}-{one.partition}", _styled_level(one.level), one.sentence) for one in replicas]
    return Table(("topic", "level", "exposure"), rows)


def prefiltered_json(prefiltered: Prefiltered) -> dict[str, Any]:
    """Return ``{suspicions, replicas, notes}``; offsets, and null where a broker does not report them."""
    return {
        "suspicions": [asdict(one, dict_factory=_json_fields) for one in prefiltered.suspicions],
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
    """Return a dataclass's fields for JSON: levels by name, sets as sorted lists."""
    return {
        name: value.label if isinstance(value, Level) else sorted(value) if isinstance(value, frozenset) else value
        for name, value in fields
    }
