"""Events of a guard, in ``guard.jsonl`` of a run folder and in files of ``harness guard --events``.

A line has ``time_ms`` since the epoch by the guard's clock, ``event``, a `GuardEventKind`, ``topic`` ("" for an event
without a topic), and ``what``, a sentence or the changed settings. It is written immediately.
"""

from enum import StrEnum


class GuardEventKind(StrEnum):
    """The type of an event."""

    LISTENS = "listens"
    READY = "ready"
    LEADS = "leads"
    STANDS_BY = "stands-by"
    EXPOSED = "exposed"
    PAUSED = "paused"
    RELEASED = "released"
    LEFT_ALONE = "left-alone"
    WOULD = "would"
    WARNING = "warning"
    FAILED = "failed"
    RECOVERED = "recovered"
    ENDED = "ended"
