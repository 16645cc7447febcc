"""The methods that every runtime has; what only some have is in `harness.runtimes.abilities`."""

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
    """The brokers of one run, whatever they are made of.

    ``settings`` are broker properties; ``logs_dir`` receives one ``<id>/server.log`` per broker. The brokers in
    ``controllers`` are the KRaft quorum as well. ``ports`` are free ones of this host, one a broker for clients,
    then one a controller, or none to have them chosen. ``needs``: what the faults of the run take. ``security``: how
    clients have to log in; brokers among each other do not. ``clock`` is the run's, and ``seed`` decides what simulated
    brokers leave to chance. ``jvm_flags``: of every broker, in addition to those of the runtime.
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
        """Return where the broker's log goes, in a folder that is there."""
        path = self.logs_dir / str(broker) / "server.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True)
class Wanted:
    """What a runtime is asked to be ready for.

    ``image``: a reference to use instead of the target's own. ``access``: hosts, for a runtime that lives on some.
    """

    target: Target
    java: Java
    on_progress: Callable[[int, int], None]
    needs: frozenset[str] = frozenset()
    image: str | None = None
    access: Access | None = None


@dataclass(frozen=True)
class Ready:
    """A runtime that was found fit for a run: the ``facts`` for its manifest, and how to make it.

    ``jars``: those that the brokers run on, where they are this host's. ``is_resumable``: data stay when the harness
    ends in mid-run. ``clock``: the one that a run goes by, made of the real one with its limit.
    """

    facts: dict[str, Any]
    make: Callable[[ClusterSpec], Runtime]
    jars: JarSet | None = None
    is_resumable: bool = True
    clock: Callable[[RealClock], Clock] = lambda real: real


def listeners(spec: ClusterSpec, host: Callable[[int], str]) -> tuple[dict[int, Address], dict[int, Address]]:
    """Return where each broker listens for clients, and each controller for brokers; ``host`` is where a node is."""
    numbers = iter(spec.ports or free_ports(len(spec.brokers) + len(spec.controllers)))
    brokers = {broker: Address(host(broker), next(numbers), spec.security) for broker in spec.brokers}
    return brokers, {node: Address(host(node), next(numbers)) for node in spec.controllers}


def bootstrap_servers(runtime: Runtime) -> str:
    """Return every broker's address, as client libraries take them."""
    return ",".join(str(runtime.address(broker)) for broker in runtime.brokers)


def live_brokers(runtime: Runtime) -> list[int]:
    """Return the brokers that can answer now."""
    return [broker for broker in runtime.brokers if runtime.is_up(broker)]


def live_addresses(runtime: Runtime) -> list[Address]:
    """Return where those are."""
    return [runtime.address(broker) for broker in live_brokers(runtime)]


class Runtime(Protocol):
    """A cluster's brokers as the runner and the nemeses handle them."""

    @property
    def brokers(self) -> Sequence[int]:
        """Node ids, in order."""
        ...

    @property
    def abilities(self) -> Sequence[object]:
        """What implements protocols of `harness.runtimes.abilities`: this runtime, or parts of it."""
        ...

    def start_cluster(self) -> None:
        """Bring up every broker for the first time. Raises `BootError` with the last log lines."""
        ...

    def start_again(self, brokers: Sequence[int]) -> None:
        """Take over a cluster whose brokers have all ended, and start these of them on the data they left."""
        ...

    def start(self, broker: int) -> None:
        """Start a broker that is down, on the data it left."""
        ...

    def stop(self, broker: int) -> None:
        """Have a broker shut down in an orderly way; it is down when this returns. Raises `HarnessError`."""
        ...

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL; it is down when this returns."""
        ...

    def pause(self, broker: int) -> None:
        """Freeze a broker's process: it answers nothing, and keeps its memory and its connections."""
        ...

    def resume(self, broker: int) -> None:
        """Let a frozen broker go on."""
        ...

    def is_up(self, broker: int) -> bool:
        """Whether the broker is meant to be running and part of the cluster.

        It is not while it is frozen or cut off, or while no controller hears it or is heard by it.
        """
        ...

    def address(self, broker: int) -> Address:
        """Where clients reach this broker."""
        ...

    def raise_if_died(self) -> None:
        """Raise `HarnessError` if a broker ended that nobody ended."""
        ...

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the broker's files of one partition, as they are on disk now, running or not."""
        ...

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the checkpoints and ``meta.properties`` of the broker's log directory."""
        ...

    def close(self, *, keep: bool = False) -> None:
        """End every broker, their data with the run's workspace; or ``keep`` them for the user.

        Their logs are in the run folder then.
        """
        ...
