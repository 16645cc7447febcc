"""The protocols of a guard's cluster, channel and group, which simulated clusters of the tests implement, too.

Every method raises `HarnessError` or OSError where the cluster does not answer; the guard tries again in its next
round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.protect.guard.journal import Entry, PauseState
    from harness.protect.guard.settings import Settings, TopicValues
    from harness.protect.guard.watch import ClusterView


@dataclass(frozen=True)
class SettingsRead:
    """Settings by topic. ``gone``: topics that do not exist. ``refused``: unread topics, with the reason."""

    settings: Mapping[str, Settings]
    gone: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


class GuardedCluster(Protocol):
    """Replicas and settings."""

    @property
    def requests(self) -> int:
        """The number of requests so far."""

    @property
    def is_alarmed(self) -> bool:
        """Whether a broker has just stopped answering: its replicas may leave ISRs at any time now."""

    def view(self) -> ClusterView:
        """Return every partition that this user may describe; replicas that are being added are not marked yet."""

    def with_added(self, view: ClusterView) -> ClusterView:
        """Return the view with the missing replicas that are being added, or a note that they are unknown."""

    def settings(self, topics: Collection[str]) -> SettingsRead:
        """Return the settings `harness.protect.guard.settings.READ` of these topics; in one request."""

    def alter(self, changes: Mapping[str, TopicValues]) -> Mapping[str, str]:
        """Set topics' explicit values, or remove them with None; in one request. Return the refusals by topic."""


class Channel(Protocol):
    """The topic with the previous settings."""

    def ensure(self) -> None:
        """Create the topic where it is missing. Raises `UsageError` where it is compacted."""

    def read(self) -> PauseState:
        """Return the state after all entries; the empty state where there is no such topic."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Store entries durably; on an error, some of them may be stored."""

    def trim(self) -> None:
        """Delete entries that the state of the last reading does not need, once there are many."""


class Leadership(Protocol):
    """Decides which of several guards acts."""

    def leads(self) -> bool:
        """Return whether this guard acts now."""
