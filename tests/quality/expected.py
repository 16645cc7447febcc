"""One wrong that an audit must or may find."""

from dataclasses import dataclass
from typing import Final

TOMBSTONE_DIVERGENCE: Final = "tombstone-divergence"
ABORTED_TO_COMMITTED: Final = "aborted-to-committed"
COMMITTED_TO_ABORTED: Final = "committed-to-aborted"
STUCK_LSO: Final = "stuck-lso"
VISIBLE: Final = "visible"
LATENT: Final = "latent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One wrong of one replica.

    ``broker`` is the wrong one. ``offset`` and ``key`` are the usual ones; ``offsets`` and ``keys`` all that
    name the same wrong: without the record a finding can only tell where the transaction began, or which value is
    alive. ``effect`` is None where either is right: the value is wrong, and nobody is delivered it because the replica
    is stuck before it. ``decided``: the logs tell its name.
    """

    anomaly: str
    topic: str
    partition: int
    broker: int
    offset: int
    key: bytes | None
    effect: str | None = VISIBLE
    evidence: str = "none"
    decided: bool = True
    required: bool = False
    producer_id: int | None = None
    offsets: frozenset[int] = frozenset()
    keys: frozenset[bytes | None] = frozenset()
