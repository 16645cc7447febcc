"""Simulated brokers: their state, their settings, the schedule of their cleaners, and the links between them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from harness.models.cluster.partition import SimPartition
from harness.models.cluster.settings import BROKER, numbers
from harness.models.log.replica import Replica

FASTEST_S, SLOWEST_S = 0.0005, 0.005
LOST: Final = 0.01
"""The fraction of lost messages in a healthy network: a lost message is sent again, where TCP would deliver it late."""


@dataclass
class Broker:
    """A broker. ``is_registered``: whether it has a session with the controller.

    ``changes`` counts starts, failures and the like: an action that was due before a change may be obsolete.
    ``common``: settings of all brokers; ``dynamic``: dynamic settings of this broker. ``phase_s``: the time of its
    cleaner's first check.
    """

    number: int
    common: Mapping[str, str]
    phase_s: float
    dynamic: dict[str, str] = field(default_factory=dict)
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
    """Logs of replicas that were unassigned while the broker was down. A replica that is assigned again before the
    broker starts has its old log; the broker deletes the other logs when it starts (``LogManager.isStrayReplica``)."""
    _numbers: dict[str, float] | None = None

    @property
    def is_active(self) -> bool:
        """True while the broker copies, cleans and answers."""
        return self.is_running and not self.is_paused

    def set(self, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of this broker; None removes a setting."""
        self.dynamic = {name: value for name, value in {**self.dynamic, **settings}.items() if value is not None}
        self._numbers = None

    def number_of(self, name: str) -> float:
        """Return a setting's number. Raises `UsageError` for a setting that is not a number."""
        if self._numbers is None:
            self._numbers = numbers("broker", BROKER, {**self.common, **self.dynamic})
        return self._numbers[name]

    def seconds_of(self, name: str) -> float:
        """Return a setting of milliseconds in seconds."""
        return self.number_of(name) / 1000

    def next_look_s(self, after_s: float) -> float:
        """Return the time of its cleaner's first check after some moment (``log.cleaner.backoff.ms``)."""
        pause_s = self.seconds_of("log.cleaner.backoff.ms")
        return self.phase_s + (math.floor((after_s - self.phase_s) / pause_s) + 1) * pause_s


@dataclass
class Network:
    """The links between brokers: ``cut`` brokers; ``lost`` fraction and added ``delays_s`` of a broker's messages."""

    random: Random
    cut: set[int] = field(default_factory=set)
    lost: dict[int, float] = field(default_factory=dict)
    delays_s: dict[int, float] = field(default_factory=dict)

    def takes_s(self, sender: int, receiver: int) -> float | None:
        """Return how long a message takes; None if it does not arrive."""
        chance = self.random.random()
        latency_s = self.random.uniform(FASTEST_S, SLOWEST_S)
        is_lost = chance < max(LOST, self.lost.get(sender, 0.0), self.lost.get(receiver, 0.0))
        if is_lost or sender in self.cut or receiver in self.cut:
            return None
        return latency_s + self.delays_s.get(sender, 0.0)

    def clear(self) -> None:
        """Remove losses and delays of all links; disconnected brokers stay disconnected."""
        self.lost.clear()
        self.delays_s.clear()
