"""The two topic settings that pause compaction, and when two values of them are the same.

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

Found: TypeAlias = "Mapping[str, str | None]"
"""Values by name, as to be put back; None: the topic has no value of its own, and inherits the broker's."""


Settings: TypeAlias = "Mapping[str, ConfigEntry]"


def is_same(one: str | None, other: str | None) -> bool:
    """Whether two values are the same number: brokers answer ``1.0`` where ``1`` was set."""
    if one is None or other is None:
        return one is other
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return one == other


def is_pause(name: str, setting: ConfigEntry) -> bool:
    """Whether a topic's own value is that of a pause. An inherited one may change at any time, and does not count."""
    return is_same(setting.explicit, PAUSE[name])


def own_values(settings: Settings) -> dict[str, str | None]:
    """Return what a topic itself has for the two settings."""
    return {name: settings[name].explicit for name in PAUSE}


def window_ms(settings: Settings) -> int:
    """Return the least time that a tombstone or marker stays after its write."""
    return int(settings[MIN_LAG_MS].value) + int(settings[RETENTION_MS].value)
