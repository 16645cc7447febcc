"""Since when replicas are missing, as far as this guard saw it, and how much of the retention is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.protect.guard.settings import window_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.protect.guard.settings import Settings
    from harness.protect.guard.watch import Replica


@dataclass
class Windows:
    """The replicas that are missing, and when each was first seen to be."""

    _since_ms: dict[Replica, int] = field(default_factory=dict)

    def see(self, missing: Collection[Replica], now_ms: int) -> None:
        """Take note of the replicas that are missing now."""
        self._since_ms = {replica: self._since_ms.get(replica, now_ms) for replica in missing}

    def left_s(self, settings: Mapping[str, Settings], now_ms: int) -> dict[str, float]:
        """Return by exposed topic the seconds left; negative once the retention is over."""
        oldest_ms: dict[str, int] = {}
        for ((topic, _), _), since_ms in self._since_ms.items():
            oldest_ms[topic] = min(since_ms, oldest_ms.get(topic, since_ms))
        return {
            topic: (since_ms + window_ms(settings[topic]) - now_ms) / 1000
            for topic, since_ms in oldest_ms.items()
            if topic in settings
        }
