"""Events of a guard, in ``guard.jsonl`` of a run folder and in files of ``harness guard --events``.

Each line is an event, written immediately:

    time_ms    int    milliseconds since the epoch, by the guard's clock
    event      str    a `GuardEventKind`
    topic      str    "" for an event without a topic
    what       str    a sentence, or the changed settings
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
