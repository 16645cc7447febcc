"""Events of a guard, and its status after a round and an observation, from which metrics and health are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.protect.guard.journal import PauseState
from harness.run_folder.guard_events import GuardEventKind


@dataclass(frozen=True)
class GuardEvent:
    """One event, as in ``guard.jsonl`` (`harness.run_folder.guard_events`)."""

    time_ms: int
    event: GuardEventKind
    topic: str
    what: str


@dataclass(frozen=True)
class Observation:
    """The logs of paused topics, read less often than once a round. ``failure``: the error of the last observation.

    ``log_bytes``: segments by topic, of all replicas together; ``growth_bytes_s``: their growth.
    """

    time_ms: int = 0
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    growth_bytes_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class GuardStatus:
    """The status after a round. ``round_ms``: the end of the last round that succeeded; 0 before.

    ``away``, ``adding``: replicas by topic; ``retention_left_s``: of exposed topics, until the first tombstone or
    marker that a replica may miss could be removed if compaction were not paused. ``unpaused``: topics that have to be
    paused and are not. ``left_alone``: settings by topic that somebody changed during the pause. ``skipped``: topics
    that should be covered and are not, with the reason. ``short_retention``: covered topics whose retention is shorter
    than three intervals.
    """

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
