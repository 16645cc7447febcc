"""The methods of every runtime; `harness.runtimes.abilities` has the optional ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.host.ports import free_ports
from harness.kafka_api.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.host.clock import Clock, RealClock
    from harness.host.java import Java
    from harness.host.nodes import Access
    from harness.kafka_api.security import Security
    from harness.targets import Target
    from harness.targets.jars import JarSet


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


def listeners(spec: ClusterSpec, host: Callable[[int], str]) -> tuple[dict[int, Address], dict[int, Address]]:
    """Return the address of each broker for clients, and of each controller. ``host``: returns the host of a node."""
    numbers = iter(spec.ports or free_ports(len(spec.brokers) + len(spec.controllers)))
    brokers = {broker: Address(host(broker), next(numbers), spec.security) for broker in spec.brokers}
    return brokers, {node: Address(host(node), next(numbers)) for node in spec.controllers}


def bootstrap_servers(runtime: Runtime) -> str:
    """Return the bootstrap servers, for client libraries: every broker's address."""
    return ",".join(str(runtime.address(broker)) for broker in runtime.brokers)


def live_brokers(runtime: Runtime) -> list[int]:
    """Return the brokers that can answer now."""
    return [broker for broker in runtime.brokers if runtime.is_up(broker)]


def live_addresses(runtime: Runtime) -> list[Address]:
    """Return the addresses of the brokers that can answer now."""
    return [runtime.address(broker) for broker in live_brokers(runtime)]


class Runtime(Protocol):
    """A cluster's brokers, for the player and the nemeses."""

    @property
    def brokers(self) -> Sequence[int]:
        """Node ids, in order."""

    @property
    def abilities(self) -> Sequence[object]:
        """Objects that implement protocols of `harness.runtimes.abilities`."""

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
        """Return whether the broker should be running and part of the cluster.

        It should not be while it is paused or cut off, or its connection to every controller is cut in any direction.
        """

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
