"""What not every runtime can do to its brokers: one protocol each, and the `Need` by which a nemesis asks for it.

A runtime lists what implements the protocols of the abilities that it has, and has a table `Need` -> why it is not
available here (None where it is). A nemesis lists its needs, so that a run without them is refused before anything
starts; while it acts it gets the ability with `ability`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.kafka_api.address import Address
    from harness.runtimes.base import Runtime, Wanted
    from harness.runtimes.power.cut import Cut

Ability = TypeVar("Ability")


class Need(StrEnum):
    """What a fault takes that not every runtime has everywhere; the value is the word for it in a refusal.

    A fault may need something else, in words of its own, which the runtimes that have it then have in their tables.
    """

    LINK = "a link of its own for each broker"
    FIREWALL = "a firewall before each broker"
    DELAY = "the kernel's network emulator"
    DISK = "a disk of its own for each broker"
    CLOCK = "a clock of its own for each broker"
    SYNCS = "brokers that note what they sync to disk"
    FILES = "a look at the files of running brokers"


@runtime_checkable
class Links(Protocol):
    """Brokers that can be isolated one by one (`Need.LINK`)."""

    def cut(self, broker: int) -> None:
        """Isolate a broker from everyone, its process running. Raises `HarnessError` where that is impossible."""
        ...

    def heal(self, broker: int) -> None:
        """Connect an isolated broker again."""
        ...


class LinkFaults(Protocol):
    """What every fault of links has in common."""

    def clear_links(self) -> None:
        """Undo what all abilities did to links, but for `Links.cut`."""
        ...


@runtime_checkable
class Firewalls(LinkFaults, Protocol):
    """Links between brokers that can drop packets (`Need.FIREWALL`)."""

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Drop what the first of each pair sends to the second. Raises `HarnessError` where that is impossible."""
        ...


@runtime_checkable
class LossyLinks(LinkFaults, Protocol):
    """Links that can lose packets at random (`Need.FIREWALL`)."""

    def lose(self, broker: int, fraction: float) -> None:
        """Drop this fraction of what is sent to and by a broker. Raises `HarnessError` where that is impossible."""
        ...


@runtime_checkable
class SlowLinks(LinkFaults, Protocol):
    """Links that can be slow (`Need.DELAY`)."""

    def delay(self, broker: int, delay_ms: int) -> None:
        """Hold up everything that a broker sends. Raises `HarnessError` where that is impossible."""
        ...


@runtime_checkable
class Disks(Protocol):
    """A disk for each broker (`Need.DISK`)."""

    def fill_disk(self, broker: int) -> None:
        """Leave a broker no room to write; the broker is expected to end. Raises `HarnessError`."""
        ...

    def free_disk(self, broker: int) -> None:
        """Give a broker's disk its room back."""
        ...


@runtime_checkable
class Clocks(Protocol):
    """A clock for each broker (`Need.CLOCK`)."""

    def skew(self, broker: int, offset_s: int) -> None:
        """Put a broker's clock so many seconds ahead. Raises `HarnessError` where that is impossible."""
        ...


@runtime_checkable
class PowerSupplies(Protocol):
    """Brokers of which it is known what they synced to disk (`Need.SYNCS`)."""

    def unsynced(self, broker: int) -> Sequence[Cut]:
        """Return what a power failure would take from a broker now. Raises `HarnessError` where that is unknown."""
        ...

    def cut_power(self, broker: int) -> Sequence[Cut]:
        """Kill a broker, cut off what it had not synced, and return that. Raises `HarnessError` likewise."""
        ...


@runtime_checkable
class DataFiles(Protocol):
    """Brokers whose files can be looked at from one moment to the next (`Need.FILES`)."""

    def kill_with_files(self, broker: int, suffixes: tuple[str, ...]) -> Mapping[str, int]:
        """Watch a broker for a moment, and kill it if any of its files ends in one of the suffixes.

        Returns those files with their sizes in bytes, by their paths in the data folder; nothing, and the broker lives
        on, where none appeared. ``__cluster_metadata`` does not count.
        """
        ...


@runtime_checkable
class AdminApi(Protocol):
    """Brokers with an HTTP API, as Redpanda's."""

    def admin_address(self, broker: int) -> Address:
        """Where the broker's HTTP API is. Raises `HarnessError` for a broker that has none."""
        ...


def ability(runtime: Runtime, protocol: Callable[..., Ability]) -> Ability:
    """Return what of the runtime has the ability, a protocol of this module.

    Raises `HarnessError` for a runtime that lacks it.
    """
    # Not annotated as a type: mypy takes none that is abstract.
    kind = cast("type[Ability]", protocol)
    for one in runtime.abilities:
        if isinstance(one, kind):
            return one
    raise HarnessError(f"brokers of this runtime have no {protocol.__name__}: {protocol.__doc__}")


def raise_if_lacking(wanted: Wanted, why_lacking: Mapping[str, Callable[[], str | None]]) -> None:
    """Ask for each need why it cannot be had here. Raises `UsageError` with the first reason."""
    for need in sorted(wanted.needs):
        reason = why_lacking[need]() if need in why_lacking else "this runtime has no such thing"
        if reason is not None:
            raise UsageError(f"this nemesis takes {need}: {reason}")
