"""What the guard needs of a cluster, as protocols, so that a simulated cluster fits.

Every method raises `HarnessError` or OSError where the cluster does not answer; the guard tries again in its next
round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.protect.guard.journal import Entry, PauseState
    from harness.protect.guard.settings import Found, Settings
    from harness.protect.guard.watch import ClusterView


@dataclass(frozen=True)
class SettingsRead:
    """Settings by topic. ``gone``: topics that do not exist. ``refused``: why others could not be read."""

    settings: Mapping[str, Settings]
    gone: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


class GuardedCluster(Protocol):
    """Replicas and settings."""

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        ...

    @property
    def is_alarmed(self) -> bool:
        """Whether a broker has stopped answering a moment ago: its replicas may leave ISRs at any time now."""
        ...

    def view(self) -> ClusterView:
        """Return every partition that this user may describe; which replicas are being added is not known yet."""
        ...

    def with_added(self, view: ClusterView) -> ClusterView:
        """Return the view with the missing replicas that are being added, and a note where that is unknown."""
        ...

    def settings(self, topics: Collection[str]) -> SettingsRead:
        """Return the settings of these topics, as `harness.protect.guard.settings.READ` lists them; in one request."""
        ...

    def alter(self, changes: Mapping[str, Found]) -> Mapping[str, str]:
        """Set topics' own values, None deletes one; in one request. Return why topics were refused."""
        ...


class Channel(Protocol):
    """The topic that keeps what was found."""

    def ensure(self) -> None:
        """Create the topic where it is missing. Raises `UsageError` where it is compacted."""
        ...

    def read(self) -> PauseState:
        """Return the state that all its entries up to now give; the empty one where there is no such topic."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep entries durably; on an error, some of them may be kept."""
        ...

    def trim(self) -> None:
        """Delete entries that the state of the last reading does not come from, once there are many."""
        ...


class Leadership(Protocol):
    """Which of several guards acts."""

    def leads(self) -> bool:
        """Whether this one does now."""
        ...

    def close(self) -> None:
        """Let another one lead at once."""
        ...
