"""What a guard did, as ``guard.jsonl`` of a run folder has it, and every file of ``harness guard --events``.

Schema, one event a line, each written at once:

    time_ms    int    milliseconds since the epoch, by the guard's clock
    event      str    one of `Kind`
    topic      str    "" where it is about no topic
    what       str    a sentence, or what was changed
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What an event is about."""

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
