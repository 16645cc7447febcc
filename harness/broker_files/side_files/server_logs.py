"""Follow the logs of brokers: parse each new line that a parser recognizes as an event."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]


@dataclass
class ServerLogs:
    """Follows logs of brokers, which need not exist yet. ``parse`` returns the event of a line and a broker."""

    paths: Mapping[int, Path]
    parse: Callable[[bytes, int], Event | None]
    _events: list[Event] = field(default_factory=list)
    _positions: dict[int, int] = field(default_factory=dict)

    def events(self) -> list[Event]:
        """Return the events of all complete lines so far, in the order of each broker's log."""
        for broker, path in self.paths.items():
            with suppress(FileNotFoundError), path.open("rb") as log:
                position = log.seek(self._positions.get(broker, 0))
                text = log.read()
                complete_lines = text[: text.rfind(b"\n") + 1]
                self._positions[broker] = position + len(complete_lines)
                parsed = (self.parse(line, broker) for line in complete_lines.splitlines())
                self._events += [event for event in parsed if event is not None]
        return list(self._events)
