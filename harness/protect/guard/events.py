"""What the guard does, for people on stderr, and for programs in a file (`harness.run_folder.guard_events`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.escape import to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

    from harness.run_folder.guard_events import GuardEventKind


@dataclass(frozen=True)
class GuardEvent:
    """One line."""

    time_ms: int
    event: GuardEventKind
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

    def __call__(self, event: GuardEvent) -> None:
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
