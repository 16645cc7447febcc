"""The offsets of a replica over time, as timelines draw them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass
class ReplicaOffsets:
    """The offsets of a replica at each time at which it was seen, in seconds, in order."""

    at_s: list[float] = field(default_factory=list)
    log_end: list[int] = field(default_factory=list)
    high_watermark: list[int] = field(default_factory=list)
    last_stable_offset: list[int] = field(default_factory=list)

    def add(self, at_s: float, log_end: int, high_watermark: int, last_stable_offset: int) -> None:
        """Take what was seen at a time that is no earlier than the last one."""
        self.at_s.append(at_s)
        self.log_end.append(log_end)
        self.high_watermark.append(high_watermark)
        self.last_stable_offset.append(last_stable_offset)

    def last(self, at_s: float) -> int | None:
        """Return the index of the newest offsets at a time; None before the first."""
        index = bisect_right(self.at_s, at_s) - 1
        return index if index >= 0 else None
