"""The brokers that are part of the cluster, by the faults of the network between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Reach:
    """A broker is reachable if its links with any controller work in both directions. Initially all are."""

    controllers: Sequence[int]
    _cut: set[int] = field(default_factory=set)
    _blocked: set[tuple[int, int]] = field(default_factory=set)

    def cut(self, broker: int) -> None:
        """Record that the broker is cut off from all others, including the harness."""
        self._cut.add(broker)

    def heal(self, broker: int) -> None:
        """Record that the broker is not cut off any more."""
        self._cut.discard(broker)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Record that packets from the first to the second broker of each pair are dropped."""
        self._blocked.update(links)

    def clear(self) -> None:
        """Record that no packets are dropped any more."""
        self._blocked.clear()

    def has(self, broker: int) -> bool:
        """Return whether the broker is reachable."""
        return broker not in self._cut and any(
            broker == controller or not {(broker, controller), (controller, broker)} & self._blocked
            for controller in self.controllers
        )
