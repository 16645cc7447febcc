"""The channel's log as one reader has replayed it: the state, and the first entry that the state still comes from.

Entries below that one may be deleted: the later entries alone give the same state. A log that begins later than a
reader has read is replayed from its beginning, because the reader may have missed the end of a pause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from harness.protect.guard.journal import HOLD, NOTE, PausePhase, PauseState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.protect.guard.journal import Entry

_Key: TypeAlias = "tuple[object, ...]"


@dataclass
class Replayed:
    """``position``: the offset of the next entry to read. Offsets are those of the channel's only partition."""

    position: int = 0
    state: PauseState = field(default_factory=PauseState)
    _offsets: dict[_Key, int] = field(default_factory=dict)

    def start(self, first: int) -> int:
        """Return the offset to read on from, where the log begins at ``first``."""
        if first > self.position:
            self.position, self.state, self._offsets = first, PauseState(), {}
        return self.position

    def add(self, entries: Sequence[tuple[int, Entry]], position: int) -> None:
        """Replay further entries, each with its offset, up to ``position``."""
        self.state, self.position = self.state.after(entry for _, entry in entries), position
        for offset, entry in entries:
            key = _key(entry)
            # A pause is replayed from its first entry, a hold or a note from its last one.
            if key is not None and not (entry.kind in set(PausePhase) and key in self._offsets):
                self._offsets[key] = offset
        needed = {
            *(("pause", topic, pause.cycle) for topic, pause in self.state.pauses.items()),
            *((HOLD, topic, by) for topic, holders in self.state.holds.items() for by in holders),
            *((NOTE, name) for name in self.state.notes),
        }
        self._offsets = {key: offset for key, offset in self._offsets.items() if key in needed}

    @property
    def needed_from(self) -> int:
        """The offset from which the entries give the present state."""
        return min(self._offsets.values(), default=self.position)


def _key(entry: Entry) -> _Key | None:
    """Return what an entry adds to the state; None where it adds nothing."""
    if entry.kind in set(PausePhase):
        return ("pause", entry.topic, entry.content.get("cycle"))
    if entry.kind == HOLD:
        return (HOLD, entry.topic, entry.content.get("by"))
    return (NOTE, entry.content.get("name")) if entry.kind == NOTE else None
