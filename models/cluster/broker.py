"""One simulated broker: whether it runs, what it was given, when its cleaner looks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.cluster.settings import BROKER, numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from models.cluster.partition import SimPartition


@dataclass
class Broker:
    """``is_registered``: the controller counts it in. ``changes`` counts what befell it: what was due may be no more.

    ``given``: settings of all brokers; ``own``: those that were set on it while it ran. ``phase_s``: when its cleaner
    looked first.
    """

    number: int
    given: Mapping[str, str]
    phase_s: float
    own: dict[str, str] = field(default_factory=dict)
    is_running: bool = False
    is_paused: bool = False
    is_registered: bool = False
    was_killed: bool = False
    look_at_s: float = math.inf
    """When its cleaner looks next at what has ``changed`` since it did last."""
    changed: dict[SimPartition, None] = field(default_factory=dict)
    skew_ms: int = 0
    changes: int = 0
    free_at_s: float = 0.0
    """When it may copy more, where it is throttled."""
    _numbers: dict[str, float] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it does anything: copies, cleans, answers."""
        return self.is_running and not self.is_paused

    def set(self, settings: Mapping[str, str | None]) -> None:
        """Take settings of its own, or take them back."""
        for name, value in settings.items():
            self.own.pop(name, None)
            if value is not None:
                self.own[name] = value
        self._numbers = None

    def number_of(self, name: str) -> float:
        """Return a setting's number. Raises `UsageError` for settings that are none."""
        if self._numbers is None:
            self._numbers = numbers("broker", BROKER, {**self.given, **self.own})
        return self._numbers[name]

    def next_look_s(self, after_s: float) -> float:
        """Return when its cleaner looks first after some moment (``log.cleaner.backoff.ms``)."""
        pause_s = self.number_of("log.cleaner.backoff.ms") / 1000
        return self.phase_s + (math.floor((after_s - self.phase_s) / pause_s) + 1) * pause_s
