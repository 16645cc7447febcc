"""Seconds and features of tests and shared fixtures while they run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tiers import features


@dataclass
class _Frame:
    """A test or shared fixture that runs; ``inner_s`` is the time of the fixtures inside."""

    key: str
    started_s: float
    inner_s: float = 0


@dataclass
class Meter:
    """Seconds and features of tests and shared fixtures, each without those that run inside."""

    seconds: dict[str, float] = field(default_factory=dict)
    noted: dict[str, set[str]] = field(default_factory=dict)
    frames: list[_Frame] = field(default_factory=list)

    def begin(self, key: str) -> None:
        self._attribute()
        self.frames.append(_Frame(key, time.monotonic()))

    def end(self) -> None:
        self._attribute()
        frame = self.frames.pop()
        whole_s = time.monotonic() - frame.started_s
        self.seconds[frame.key] = self.seconds.get(frame.key, 0) + whole_s - frame.inner_s
        if self.frames:
            self.frames[-1].inner_s += whole_s

    def _attribute(self) -> None:
        """Give what was noted to the innermost frame."""
        noted = features.take()
        if self.frames and noted:
            self.noted.setdefault(self.frames[-1].key, set()).update(noted)
