"""One simulated broker: its state, its settings, and the schedule of its cleaner."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.models.cluster.settings import BROKER, numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.models.cluster.partition import SimPartition
    from harness.models.log.replica import Replica


@dataclass
class Broker:
    """A broker. ``is_registered``: whether it has a session with the controller.

    ``changes`` counts starts, failures and the like: an action that was due before a change may be obsolete.

    ``given``: settings of all brokers; ``own``: dynamic settings of this broker. ``phase_s``: when its cleaner first
    checked for work.
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
    """When its cleaner next checks the partitions that have ``changed`` since the last check."""
    changed: dict[SimPartition, None] = field(default_factory=dict)
    skew_ms: int = 0
    changes: int = 0
    free_at_s: float = 0.0
    """When it may copy more, if it is throttled."""
    stray: dict[SimPartition, Replica] = field(default_factory=dict)
    """Logs of replicas that were unassigned while the broker was down. When it starts it deletes those that are still
    unassigned (``LogManager.isStrayReplica``), so that a replica that is assigned again before has its old log."""
    _numbers: dict[str, float] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it copies, cleans and answers."""
        return self.is_running and not self.is_paused

    def set(self, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of this broker, or remove those that are None."""
        for name, value in settings.items():
            self.own.pop(name, None)
            if value is not None:
                self.own[name] = value
        self._numbers = None

    def number_of(self, name: str) -> float:
        """Return a setting's number. Raises `UsageError` for settings that are no numbers."""
        if self._numbers is None:
            self._numbers = numbers("broker", BROKER, {**self.given, **self.own})
        return self._numbers[name]

    def next_look_s(self, after_s: float) -> float:
        """Return the time of its cleaner's first check after some moment (``log.cleaner.backoff.ms``)."""
        pause_s = self.number_of("log.cleaner.backoff.ms") / 1000
        return self.phase_s + (math.floor((after_s - self.phase_s) / pause_s) + 1) * pause_s
