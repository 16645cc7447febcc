"""How long a run's topics keep what compaction may take, as its manifest tells."""

from __future__ import annotations

from typing import Any

RETENTIONS = (
    ("delete.retention.ms", "log.cleaner.delete.retention.ms", 86_400_000),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0),
)
"""In the order of `checkers.evidence.schemas.SETTINGS`: a topic's setting, else that of its brokers, else Kafka's
default."""


CLOCK_SKEW = "clock-skew"
"""The nemesis that puts clocks forward: brokers keep to them, and nobody else's clock tells what they promise then."""


def retentions_ms(manifest: dict[str, Any]) -> tuple[int | None, ...]:
    """Return each of them, None where the manifest tells no settings, and where the run put clocks wrong.

    Raises ValueError for one that is no number.
    """
    if "topic_settings" not in manifest or manifest.get("nemesis") == CLOCK_SKEW:
        return (None,) * len(RETENTIONS)
    topic, broker = manifest["topic_settings"], manifest.get("broker_settings", {})
    return tuple(_number(name, topic.get(name, broker.get(of_broker, own))) for name, of_broker, own in RETENTIONS)


def _number(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no number: {value!r}") from error
