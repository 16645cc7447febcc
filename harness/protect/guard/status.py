"""What the guard knows at the end of a round: one value, from which metrics, health and the last lines are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.protect.guard.journal import PauseState

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Observation:
    """What is looked at less often than in each round; by topic. ``failure``: why the last look failed.

    ``lso_spread``: by how many offsets the last stable offsets of a partition's replicas differ at most.
    ``suspicions``: what `harness audit live --quick` suspects, by anomaly. ``log_bytes``: segments of paused topics,
    all replicas together; ``growth_bytes_s``: by how much they grow.
    """

    time_ms: int = 0
    open_transactions: Mapping[str, int] = field(default_factory=dict)
    lso_spread: Mapping[str, int] = field(default_factory=dict)
    suspicions: Mapping[str, int] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    growth_bytes_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class GuardStatus:
    """After a round. ``round_ms``: when the last one ended that succeeded; 0 before.

    ``away``, ``adding``: replicas by topic; ``retention_left_s``: of exposed topics, until the first tombstone or
    marker that a replica may lack can be removed, had compaction not been paused. ``unpaused``: topics that have to be
    paused and are not. ``left_alone``: settings by topic that somebody changed during the pause. ``skipped``: why
    topics are not covered that should be. ``short_retention``: covered topics whose retention is shorter than three
    intervals.
    """

    mode: str = "act"
    interval_s: float = 0.0
    leads: bool = False
    round_ms: int = 0
    rounds: int = 0
    failures: int = 0
    failure: str | None = None
    took_s: float = 0.0
    requests: int = 0
    covered: frozenset[str] = frozenset()
    away: Mapping[str, int] = field(default_factory=dict)
    adding: Mapping[str, int] = field(default_factory=dict)
    retention_left_s: Mapping[str, float] = field(default_factory=dict)
    state: PauseState = field(default_factory=PauseState)
    unpaused: frozenset[str] = frozenset()
    left_alone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    short_retention: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
