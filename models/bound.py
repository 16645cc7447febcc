"""How much may happen in a small cluster whose state space is explored (`models.state_space`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.brokers.segments.tombstones import BY_NULL, Tombstones

LEAVES: Final = 2
"""The broker that may go away."""
JOINS: Final = 4
"""The broker that may be added."""
NO_CHANGE, LEADER, ADD, REMOVE = "no change", "leader", "add", "remove"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How much may happen. ``change``: the kind of change; ``epoch_bump``: transactions of version 2 (KIP-890).

    ``outage``: LEAVES may go away, once.
    ``tombstones``: how clients delete a key, and which records cleaners treat as tombstones.
    """

    keys: tuple[str, ...] = ("K",)
    writes: int = 2
    transactions: int = 1
    change: str = NO_CHANGE
    outage: bool = True
    epoch_bump: bool = False
    tombstones: Tombstones = BY_NULL
