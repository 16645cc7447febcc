"""Optional abilities of runtimes: a protocol for each, and the `Need` by which a nemesis requires it.

A runtime lists the objects that implement its abilities, and has a table from `Need` to the reason why it is not
available (None if it is). A nemesis lists its needs, so that a run without them is rejected before anything starts;
it obtains an ability with `ability`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.kafka_api.address import Address
    from harness.runtimes.base import Runtime, RuntimeRequest
    from harness.runtimes.power.cut import Cut

Ability = TypeVar("Ability")


class Need(StrEnum):
    """An ability that a fault requires; the value is its name in error messages.

    A fault may require another ability, by a name that is in the tables of the runtimes that have it.
    """

    LINK = "a separate link for each broker"
    FIREWALL = "a firewall before each broker"
    DELAY = "the kernel's network emulator"
    DISK = "a separate disk for each broker"
    CLOCK = "a separate clock for each broker"
    SYNCS = "brokers that record their syncs to disk"
    FILES = "access to the files of running brokers"


@runtime_checkable
class Links(Protocol):
    """Brokers that can be isolated individually (`Need.LINK`)."""

    def cut(self, broker: int) -> None:
        """Isolate a running broker from all other processes. Raises `HarnessError`."""

    def heal(self, broker: int) -> None:
        """Reconnect an isolated broker."""


class LinkFaults(Protocol):
    """The common method of all faults of links."""

    def clear_links(self) -> None:
        """Undo the effects of all abilities on links, except `Links.cut`."""


@runtime_checkable
class Firewalls(LinkFaults, Protocol):
    """Links between brokers that can drop packets (`Need.FIREWALL`)."""

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Drop the packets from the first to the second broker of each pair. Raises `HarnessError`."""


@runtime_checkable
class LossyLinks(LinkFaults, Protocol):
    """Links that can lose packets at random (`Need.FIREWALL`)."""

    def lose(self, broker: int, fraction: float) -> None:
        """Drop this fraction of the packets to and from a broker. Raises `HarnessError`."""


@runtime_checkable
class SlowLinks(LinkFaults, Protocol):
    """Links that can be slow (`Need.DELAY`)."""

    def delay(self, broker: int, delay_ms: int) -> None:
        """Delay all packets of a broker. Raises `HarnessError`."""


@runtime_checkable
class Disks(Protocol):
    """A disk for each broker (`Need.DISK`)."""

    def fill_disk(self, broker: int) -> None:
        """Fill a broker's disk; the broker is expected to end. Raises `HarnessError`."""

    def free_disk(self, broker: int) -> None:
        """Free a broker's disk."""


@runtime_checkable
class Clocks(Protocol):
    """A clock for each broker (`Need.CLOCK`)."""

    def skew(self, broker: int, offset_s: int) -> None:
        """Set a broker's clock this many seconds ahead. Raises `HarnessError`."""


@runtime_checkable
class PowerSupplies(Protocol):
    """Brokers whose synced data are known (`Need.SYNCS`)."""

    def unsynced(self, broker: int) -> Sequence[Cut]:
        """Return the data that a broker would lose in a power failure. Raises `HarnessError` if they are unknown."""

    def cut_power(self, broker: int) -> Sequence[Cut]:
        """Kill a broker, and cut off and return its unsynced data. Raises `HarnessError` if they are unknown."""


@runtime_checkable
class DataFiles(Protocol):
    """Brokers whose files can be watched (`Need.FILES`)."""

    def kill_with_files(self, broker: int, suffixes: tuple[str, ...]) -> Mapping[str, int]:
        """Watch a broker for a moment, and kill it if it has files with one of the suffixes.

        Returns the sizes of these files in bytes, by their paths in the data folder; empty if the broker was not
        killed. ``__cluster_metadata`` does not count.
        """


@runtime_checkable
class AdminApi(Protocol):
    """Brokers with an HTTP API, such as Redpanda's."""

    def admin_address(self, broker: int) -> Address:
        """Return the address of the broker's HTTP API. Raises `HarnessError` for a broker without one."""


def ability(runtime: Runtime, protocol: Callable[..., Ability]) -> Ability:
    """Return the runtime's implementation of a protocol of this module. Raises `HarnessError` without one."""
    # The parameter is not annotated as a type, as mypy does not accept abstract types.
    kind = cast("type[Ability]", protocol)
    for candidate in runtime.abilities:
        if isinstance(candidate, kind):
            return candidate
    raise HarnessError(f"brokers of this runtime have no {protocol.__name__}: {protocol.__doc__}")


def raise_if_unmet(request: RuntimeRequest, why_missing: Mapping[str, Callable[[], str | None]]) -> None:
    """Verify that each need is available. Raises `UsageError` with the first reason why one is not."""
    for need in sorted(request.needs):
        reason = why_missing[need]() if need in why_missing else "this runtime does not have this"
        if reason is not None:
            raise UsageError(f"this nemesis needs {need}: {reason}")
