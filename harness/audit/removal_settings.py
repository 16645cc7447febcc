"""The settings of a topic that decide when records may be removed."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RemovalSettings:
    """Settings that delay the removal of records: milliseconds, a ratio from 0 to 1. None: unknown."""

    delete_retention_ms: int | None
    min_compaction_lag_ms: int | None
    min_cleanable_dirty_ratio: float | None
    max_compaction_lag_ms: int | None = None

    @property
    def window_ms(self) -> int | None:
        """The least time that a tombstone or marker stays; None where the retention is unknown."""
        if self.delete_retention_ms is None:
            return None
        return (self.min_compaction_lag_ms or 0) + self.delete_retention_ms


def read_settings(settings: Mapping[str, str] | None) -> RemovalSettings:
    """Return the settings that decide about removal. Redpanda leaves out the settings that it does not know."""
    values = settings or {}
    names = ("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
    retention, lag, most_lag = (int(values[name]) if values.get(name) else None for name in names)
    ratio = values.get("min.cleanable.dirty.ratio")
    return RemovalSettings(retention, lag, float(ratio) if ratio else None, most_lag)
