"""What an audit found out by asking, for people (tables) and for programs (what JSON can hold)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.audit.exposure import Level
from harness.terminal import Table, styled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from harness.audit.exposure import Exposure
    from harness.audit.looks import Looks
    from harness.audit.prefilter import Prefiltered

STYLES = {Level.OK: "green", Level.AT_RISK: "yellow", Level.TOO_LATE: "red"}
UNTOLD = "?"


def replica_table(looks: Looks) -> Table:
    """Return a table of every replica that was seen."""
    names = ("partition", "broker", "log start", "last stable", "high watermark", "log end", "open transactions")
    rows = []
    for (broker, (topic, partition)), look in sorted(looks.replicas.items(), key=lambda item: (item[0][1], item[0][0])):
        held = (
            UNTOLD
            if look.open is None
            else ", ".join(f"producer {one.producer_id} from {one.first_offset}" for one in look.open)
        )
        end = UNTOLD if look.log_end is None else str(look.log_end)
        offsets = map(str, (look.log_start, look.last_stable_offset, look.high_watermark))
        rows.append((f"{topic}-{partition}", str(broker), *offsets, end, held))
    return Table(names, rows)


def exposure_table(exposure: Exposure) -> Table:
    """Return a table of every topic, and below it of the replicas that are away or being added; the worst first."""
    rows: list[tuple[str, Text, str]] = []
    for topic in sorted(exposure.topics, key=lambda topic: (-topic.level, topic.topic)):
        rows.append((topic.topic, _word(topic.level), topic.sentence))
        replicas = sorted(topic.replicas, key=lambda one: (-one.level, one.partition, one.broker))
        rows += [(f"  {one.topic}-{one.partition}", _word(one.level), one.sentence) for one in replicas]
    return Table(("topic", "level", "what is at stake"), rows)


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


def _word(level: Level) -> Text:
    return styled(level.words, STYLES[level])


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
