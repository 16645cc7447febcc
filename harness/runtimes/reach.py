"""Which brokers are part of the cluster still, by what was done to the network between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Reach:
    """A broker is within reach while some controller hears it, and is heard by it. At first all are."""

    controllers: Sequence[int]
    _cut: set[int] = field(default_factory=set)
    _blocked: set[tuple[int, int]] = field(default_factory=set)

    def cut(self, broker: int) -> None:
        """Note that the broker is cut off from everybody, the harness too."""
        self._cut.add(broker)

    def heal(self, broker: int) -> None:
        """Note that it is not any more."""
        self._cut.discard(broker)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Note that what the first of each pair sends does not reach the second."""
        self._blocked.update(links)

    def clear(self) -> None:
        """Note that nothing is dropped any more."""
        self._blocked.clear()

    def has(self, broker: int) -> bool:
        """Whether the broker is within reach."""
        return broker not in self._cut and any(
            broker == controller or not {(broker, controller), (controller, broker)} & self._blocked
            for controller in self.controllers
        )
