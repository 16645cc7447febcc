"""What the guard did, one JSON object a line: for people on stderr, for programs in a file.

Schema of the file of ``--events``, each line written at once:

    time_ms    int    milliseconds since the epoch, by the guard's clock
    event      str    one of `Kind`
    topic      str    "" where it is about no topic
    what       str    a sentence, or what was changed
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.escape import to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO


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


@dataclass(frozen=True)
class Event:
    """One line."""

    time_ms: int
    event: Kind
    topic: str
    what: str


class EventLog:
    """Prints events, and appends them to a file where there is one."""

    def __init__(self, show: Callable[[str], None], path: Path | None = None) -> None:
        """Open the file. Raises `UsageError` where it cannot be written."""
        self._show = show
        self._file: IO[str] | None = None
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise UsageError(f"--events {path}: {error.strerror or error}") from error

    def __call__(self, event: Event) -> None:
        """Report one event."""
        topic = f" {event.topic}" if event.topic else ""
        self._show(f"guard: {event.event}{topic}: {event.what}")
        if self._file is not None:
            self._file.write(f"{to_json(asdict(event))}\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
