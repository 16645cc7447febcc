"""The two topic settings that pause compaction, and the equality of their values.

A cleaner chooses a log whose dirty ratio is *greater* than ``min.cleanable.dirty.ratio``, or that has a dirty record
older than ``max.compaction.lag.ms`` (`LogCleanerManager.grabFilthiestCompactedLog`, KIP-354). A ratio is never greater
than 1, and no record is older than the greatest lag: with both values even a log that is dirty from end to end waits.
Seen to prevent every anomaly on Kafka 4.4.0 (`docs/how-to/guard.md`).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kafka_api.configs import ConfigEntry

DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MAX_LAG_MS: Final = "max.compaction.lag.ms"
PAUSE: Final = {DIRTY_RATIO: "1", MAX_LAG_MS: str(2**63 - 1)}
"""The settings of a topic whose compaction is paused. The guard changes no other settings."""
POLICY: Final = "cleanup.policy"
RETENTION_MS, MIN_LAG_MS = "delete.retention.ms", "min.compaction.lag.ms"
READ: Final = (*PAUSE, POLICY, RETENTION_MS, MIN_LAG_MS)
"""The settings that the guard reads."""

TopicValues: TypeAlias = "Mapping[str, str | None]"
"""The explicit values of a topic's settings; None where the topic inherits the broker's value."""
Settings: TypeAlias = "Mapping[str, ConfigEntry]"


def is_same(value: str | None, other: str | None) -> bool:
    """Return whether two values are the same number: brokers answer ``1.0`` where ``1`` was set."""
    if value is None or other is None:
        return value is other
    try:
        return Decimal(value) == Decimal(other)
    except InvalidOperation:
        return value == other


def is_pause(name: str, setting: ConfigEntry) -> bool:
    """Return whether a topic has the explicit value of a pause. An inherited value may change at any time."""
    return is_same(setting.explicit, PAUSE[name])


def explicit_values(settings: Settings) -> dict[str, str | None]:
    """Return the topic's explicit values of the two settings."""
    return {name: settings[name].explicit for name in PAUSE}


def changes_text(values: TopicValues) -> str:
    """Return values for people."""
    return ", ".join(f"{name}={'(inherited)' if value is None else value}" for name, value in values.items())


def window_ms(settings: Settings) -> int:
    """Return the least time for which a tombstone or marker stays in the log."""
    return int(settings[MIN_LAG_MS].value) + int(settings[RETENTION_MS].value)
