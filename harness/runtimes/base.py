"""The methods of every runtime, and protocols of the optional abilities of runtimes.

A runtime lists the objects that implement its abilities, and has a table from `Need` to the reason why it is not
available (None if it is). A nemesis lists its needs, so that a run without them is rejected before anything starts;
it obtains an ability with `ability`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from harness.errors import HarnessError, UsageError
from harness.host.clock import Clock, RealClock
from harness.host.java import Java
from harness.host.ports import free_ports
from harness.kafka_api.address import Address

if TYPE_CHECKING:
    from harness.host.nodes import Access
    from harness.kafka_api.security import Security
    from harness.runtimes.power import Cut
    from harness.targets import Target
    from harness.targets.jars import JarSet

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


@dataclass(frozen=True)
class ClusterSpec:
    """The brokers of one run, for any runtime.

    ``settings``: broker properties. ``logs_dir``: receives ``<id>/server.log`` of each broker. ``controllers``: the
    brokers of the KRaft quorum. ``ports``: free ports of this host, one for the clients of each broker, then one for
    each controller; empty: the runtime chooses. ``needs``: of the run's faults. ``security``: the logins of clients;
    brokers do not log in to each other. ``clock``: the run's. ``seed``: of the random choices of simulated brokers.
    ``jvm_flags``: additional flags of every broker.
    """

    run_id: str
    work_dir: Path
    logs_dir: Path
    settings: Mapping[str, str]
    brokers: tuple[int, ...] = (1, 2, 3)
    controllers: tuple[int, ...] = (1,)
    ports: tuple[int, ...] = ()
    needs: frozenset[str] = frozenset()
    security: Security | None = None
    clock: Clock | None = None
    seed: int = 0
    jvm_flags: tuple[str, ...] = ()

    def log_path(self, broker: int) -> Path:
        """Return the path of the broker's log, and create its folder."""
        path = self.logs_dir / str(broker) / "server.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True)
class RuntimeRequest:
    """The requirements for a runtime. ``image``: a reference that replaces the target's. ``access``: hosts, for SSH."""

    target: Target
    java: Java
    on_progress: Callable[[int, int], None]
    needs: frozenset[str] = frozenset()
    image: str | None = None
    access: Access | None = None


@dataclass(frozen=True)
class PreparedRuntime:
    """A runtime whose requirements are met: the ``facts`` for the manifest, and the function that creates it.

    ``jars``: of brokers on this host. ``is_resumable``: whether data survive an interruption of the harness. ``clock``:
    returns the run's clock for the real clock.
    """

    facts: dict[str, Any]
    make: Callable[[ClusterSpec], Runtime]
    jars: JarSet | None = None
    is_resumable: bool = True
    clock: Callable[[RealClock], Clock] = lambda real: real


class Runtime(Protocol):
    """A cluster's brokers, for the player and the nemeses."""

    @property
    def brokers(self) -> Sequence[int]:
        """Node ids, in order."""

    @property
    def abilities(self) -> Sequence[object]:
        """Objects that implement protocols of optional abilities."""

    def start_cluster(self) -> None:
        """Start every broker for the first time. Raises `BootError` with the last log lines."""

    def start_again(self, brokers: Sequence[int]) -> None:
        """Take over a cluster whose brokers have all ended, and start some of them with their data."""

    def start(self, broker: int) -> None:
        """Start a broker that is down, with its data."""

    def stop(self, broker: int) -> None:
        """Shut a broker down cleanly, and wait for its end. Raises `HarnessError`."""

    def kill(self, broker: int) -> None:
        """SIGKILL a broker, and wait for its end."""

    def pause(self, broker: int) -> None:
        """Pause a broker's process, which does not answer, and keeps its memory and its connections."""

    def resume(self, broker: int) -> None:
        """Continue a paused broker."""

    def is_up(self, broker: int) -> bool:
        """Return whether the broker should be running and part of the cluster."""

    def address(self, broker: int) -> Address:
        """Return the broker's address for clients."""

    def raise_if_died(self) -> None:
        """Raise `HarnessError` if a broker ended by itself."""

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the files of one partition from the disk of a broker that may be running."""

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the checkpoints and ``meta.properties`` of the broker's log directory."""

    def close(self, *, keep: bool = False) -> None:
        """End every broker, or ``keep`` it for the user; store the brokers' logs in the run folder."""


def bootstrap_servers(runtime: Runtime) -> str:
    """Return the bootstrap servers, for client libraries: every broker's address."""
    return ",".join(str(runtime.address(broker)) for broker in runtime.brokers)


def live_brokers(runtime: Runtime) -> list[int]:
    """Return the brokers that can answer now."""
    return [broker for broker in runtime.brokers if runtime.is_up(broker)]


def live_addresses(runtime: Runtime) -> list[Address]:
    """Return the addresses of the brokers that can answer now."""
    return [runtime.address(broker) for broker in live_brokers(runtime)]


def listeners(spec: ClusterSpec, host: Callable[[int], str]) -> tuple[dict[int, Address], dict[int, Address]]:
    """Return the address of each broker for clients, and of each controller. ``host``: returns the host of a node."""
    numbers = iter(spec.ports or free_ports(len(spec.brokers) + len(spec.controllers)))
    brokers = {broker: Address(host(broker), next(numbers), spec.security) for broker in spec.brokers}
    return brokers, {node: Address(host(node), next(numbers)) for node in spec.controllers}


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
            raise UsageError(f"this run needs {need}: {reason}")
