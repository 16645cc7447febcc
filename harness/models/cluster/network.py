"""The links between brokers: delays of messages, and messages that never arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

FASTEST_S, SLOWEST_S = 0.0005, 0.005
LOST: Final = 0.01
"""The share of lost messages in a healthy network: a lost message is sent again, where TCP would deliver it late."""


@dataclass
class Network:
    """``cut``: disconnected brokers. ``lost``, ``delays_s``: lost share and added delay of a broker's messages."""

    random: Random
    cut: set[int] = field(default_factory=set)
    lost: dict[int, float] = field(default_factory=dict)
    delays_s: dict[int, float] = field(default_factory=dict)

    def takes_s(self, sender: int, receiver: int) -> float | None:
        """Return how long a message takes; None if it does not arrive."""
        chance = self.random.random()
        latency_s = self.random.uniform(FASTEST_S, SLOWEST_S)
        if sender in self.cut or receiver in self.cut:
            return None
        if chance < max(LOST, self.lost.get(sender, 0.0), self.lost.get(receiver, 0.0)):
            return None
        return latency_s + self.delays_s.get(sender, 0.0)

    def clear(self) -> None:
        """Remove losses and delays of all links; disconnected brokers stay disconnected."""
        self.lost.clear()
        self.delays_s.clear()
