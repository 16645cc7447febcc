"""The duration of each phase of a round, in real seconds, also for simulated rounds with a virtual clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass
class Stopwatch:
    """Phases one after another. ``progress`` is called with the name of each that begins."""

    progress: Callable[[str], None]
    _took_s: dict[str, float] = field(default_factory=dict)
    _phase: str | None = None
    _began_s: float = 0.0

    def begin(self, phase: str) -> None:
        """End the current phase, and begin this one."""
        self.end()
        self._phase, self._began_s = phase, time.monotonic()
        self.progress(phase)

    def end(self) -> Mapping[str, float]:
        """End the current phase; return the seconds of each phase so far."""
        if self._phase is not None:
            took_s = time.monotonic() - self._began_s
            self._took_s[self._phase] = round(self._took_s.get(self._phase, 0.0) + took_s, 2)
            self._phase = None
        return dict(self._took_s)
