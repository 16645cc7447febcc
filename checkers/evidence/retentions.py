"""The settings that delay compaction in a run's topics, from the run's manifest."""

from __future__ import annotations

from typing import Any

RETENTIONS = (
    ("delete.retention.ms", "log.cleaner.delete.retention.ms", 86_400_000),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0),
)
"""Topic setting, broker setting and Kafka's default, in the order of `checkers.evidence.schemas.SETTINGS`. The topic's
setting takes precedence over the brokers', and that over the default."""


CLOCK_SKEW = "clock-skew"
"""The nemesis that sets clocks forward: brokers measure these times by their own clocks, which then are wrong."""


def retentions_ms(manifest: dict[str, Any]) -> tuple[int | None, ...]:
    """Return each setting; None where the manifest has no settings, and where the nemesis set clocks forward.

    Raises ValueError for a setting that is not a number.
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
