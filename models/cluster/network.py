"""Who reaches whom, and how long a message takes: some take longer than others, and some never arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

FASTEST_S, SLOWEST_S = 0.0005, 0.005
LOST: Final = 0.01
"""Of a healthy network: what TCP makes up for is a message that is late, here one that is sent again."""


@dataclass
class Network:
    """``cut``: brokers that reach nobody. ``lost``, ``delays_s``: what a broker's link loses and adds."""

    random: Random
    cut: set[int] = field(default_factory=set)
    lost: dict[int, float] = field(default_factory=dict)
    delays_s: dict[int, float] = field(default_factory=dict)

    def takes_s(self, sender: int, receiver: int) -> float | None:
        """Return how long a message is under way; None where it does not arrive."""
        chance = self.random.random()
        latency_s = self.random.uniform(FASTEST_S, SLOWEST_S)
        if sender in self.cut or receiver in self.cut:
            return None
        if chance < max(LOST, self.lost.get(sender, 0.0), self.lost.get(receiver, 0.0)):
            return None
        return latency_s + self.delays_s.get(sender, 0.0)

    def clear(self) -> None:
        """Take back what was done to links but for those that are cut."""
        self.lost.clear()
        self.delays_s.clear()
