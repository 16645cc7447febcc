"""What an audit found out by asking, for people (tables) and for programs (what JSON can hold)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from harness.audit.exposure import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.audit.exposure import Exposure
    from harness.audit.looks import Looks
    from harness.audit.prefilter import Prefiltered

STYLES = {Level.OK: "green", Level.AT_RISK: "yellow", Level.TOO_LATE: "red"}
UNTOLD = "?"


def replica_table(looks: Looks) -> Table:
    """Return a table of every replica that was seen."""
    names = ("partition", "broker", "log start", "last stable", "high watermark", "log end", "open transactions")
    table = Table(*names, box=None)
    for (broker, (topic, partition)), look in sorted(looks.replicas.items(), key=lambda item: (item[0][1], item[0][0])):
        held = (
            UNTOLD
            if look.open is None
            else ", ".join(f"producer {one.producer_id} from {one.first_offset}" for one in look.open)
        )
        end = UNTOLD if look.log_end is None else str(look.log_end)
        offsets = map(str, (look.log_start, look.last_stable_offset, look.high_watermark))
        table.add_row(f"{topic}-{partition}", str(broker), *offsets, end, held)
    return table


def exposure_table(exposure: Exposure) -> Table:
    """Return a table of every topic, and below it of the replicas that are away or being added; the worst first."""
    table = Table("topic", "level", "what is at stake", box=None)
    for topic in sorted(exposure.topics, key=lambda topic: (-topic.level, topic.topic)):
        table.add_row(topic.topic, _styled(topic.level), Text(topic.sentence))
        for one in sorted(topic.replicas, key=lambda one: (-one.level, one.partition, one.broker)):
            table.add_row(f"  {one.topic}-{one.partition}", _styled(one.level), Text(one.sentence))
    return table


def prefiltered_json(prefiltered: Prefiltered) -> dict[str, Any]:
    """Return ``{suspicions, replicas, notes}``; offsets, and null where a broker does not tell."""
    return {
        "suspicions": [_plain(asdict(one)) for one in prefiltered.suspicions],
        "replicas": [
            {"broker": broker, "topic": topic, "partition": partition, **_plain(asdict(look))}
            for (broker, (topic, partition)), look in sorted(prefiltered.looks.replicas.items())
        ],
        "notes": list(prefiltered.notes),
    }


def exposure_json(exposure: Exposure) -> dict[str, Any]:
    """Return ``{level, topics, notes}``; levels as words, times in milliseconds, null where nobody tells."""
    told: dict[str, Any] = _plain(asdict(exposure))
    return {"level": exposure.level.words, **told}


def _styled(level: Level) -> str:
    return f"[{STYLES[level]}]{level.words}[/]"


def _plain(value: Any) -> Any:
    """Return what JSON can hold: sets as sorted lists, levels as words."""
    if isinstance(value, Level):
        return value.words
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    if isinstance(value, (set, frozenset)):
        return _listed(sorted(value))
    return _listed(value) if isinstance(value, (list, tuple)) else value


def _listed(values: Iterable[Any]) -> list[Any]:
    return [_plain(value) for value in values]
