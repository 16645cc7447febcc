"""Brokers as containers of this host: created by compose, controlled through the engine's API.

Clients reach them by ports that are published on the loopback address, brokers by a separate bridge network of the run.
A broker that is cut off is disconnected from that network, and loses its address.
"""

import io
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Any

from docker import DockerClient
from docker.models.containers import Container
from docker.models.networks import Network

from harness.errors import BootError, HarnessError, raised_as
from harness.host import commands, engine, leftovers, ports
from harness.host.leftovers import COMPOSE_FILE
from harness.kafka_api.address import Address
from harness.runtimes import namespaces
from harness.runtimes.base import ClusterSpec, Need, PreparedRuntime, RuntimeRequest, listeners, raise_if_unmet
from harness.runtimes.log_dir import copy_when_still, tail
from harness.runtimes.namespaces import NamespaceFaults, Reach
from harness.runtimes.recipe import CLIENT_PORT, Recipe, recipe_for, service
from harness.targets import images

CREATE_TIMEOUT_S = 120.0
STOP_TIMEOUT_S, SHUTDOWN_TIMEOUT_S = 10, 60
KILLED = 128 + 9
LOOK_EVERY_S = 0.5
LOG_LINES = 500
CHUNK_BYTES = 1 << 20


WHY_UNAVAILABLE: dict[str, Callable[[], str | None]] = {
    Need.LINK: lambda: None,
    Need.FIREWALL: namespaces.why_not_entered,
    Need.DELAY: lambda: namespaces.why_not_entered() or namespaces.why_not_slow(),
    Need.DISK: lambda: "containers share the disk of the engine; use --runtime local",
    Need.CLOCK: lambda: "containers share the clock of their host; use --runtime local",
    Need.SYNCS: lambda: "containers run without the agent that records syncs; use --runtime local",
    Need.FILES: lambda: "the files of a container can only be copied; use --runtime local",
}
"""The reason why a need is not available, or None."""


def prepare(request: RuntimeRequest) -> PreparedRuntime:
    """Find the engine, compose and the image. Raises `UsageError` if one is missing."""
    raise_if_unmet(request, WHY_UNAVAILABLE)
    client, compose = engine.connect(), engine.find_compose()
    image = images.obtain(client, request.target, request.image)
    recipe = recipe_for(request.target)
    with engine.errors_as("the container engine names no version"):
        version = client.version()["Version"]

    def make(spec: ClusterSpec) -> DockerRuntime:
        runtime = DockerRuntime(spec, client, compose, image=image.id, recipe=recipe)
        runtime.adopt()
        return runtime

    return PreparedRuntime({"name": "docker", "engine": version, "image": vars(image)}, make)


def why_unavailable(request: RuntimeRequest) -> str | None:
    """Return why containers cannot run a target now (a need, no engine, no compose, no local image), or None."""
    try:
        raise_if_unmet(request, WHY_UNAVAILABLE)
        client, _ = engine.connect(), engine.find_compose()
        image = images.find(client, request.target, request.image)
    except HarnessError as error:
        return str(error)
    return None if image else f"the container engine has no image of {request.target.name}"


@dataclass(eq=False)
class DockerRuntime:
    """Implements `harness.runtimes.base.Runtime` with containers. ``compose``: a command; ``image``: a reference."""

    spec: ClusterSpec
    client: DockerClient
    compose: Sequence[str]
    image: str
    recipe: Recipe
    now_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Configure brokers, without creating containers. Raises `UsageError` for a login that the image rejects."""
        self.brokers = self.spec.brokers
        self._looked_s = self.now_s()
        self._containers: dict[int, Container] = {}
        self._running: set[int] = set()
        self._reach = Reach(self.spec.controllers, self._running)
        self.abilities = (self, NamespaceFaults(self.brokers, self._inside, self._inner_address, self._reach))
        self._addresses, _ = listeners(self.spec, lambda _: ports.LOOPBACK)
        self.is_up, self.address = self._reach.is_up, self._addresses.__getitem__
        self._configurations = {b: self.recipe.configure(self.spec, b, at) for b, at in self._addresses.items()}
        admin_ports = ports.free_ports(len(self.brokers)) if self.recipe.admin_port else []
        self._admin_addresses = {
            broker: Address(ports.LOOPBACK, number) for broker, number in zip(self.brokers, admin_ports, strict=False)
        }

    def admin_address(self, broker: int) -> Address:
        """Return the address of the broker's HTTP API. Raises `HarnessError` for brokers without one."""
        if broker not in self._admin_addresses:
            raise HarnessError(f"broker {broker} has no HTTP API")
        return self._admin_addresses[broker]

    def start_cluster(self) -> None:
        """Create, configure and start every container. Raises `BootError`."""
        with raised_as(BootError, "the containers cannot be started", HarnessError):
            self._create()
            self._find_all()
            for broker, container in self._containers.items():
                packed = io.BytesIO()
                with tarfile.open(fileobj=packed, mode="w") as tar:
                    images.add_file(tar, self.recipe.config.name, self._configurations[broker].encode())
                with engine.errors_as(f"broker {broker} cannot be configured"):
                    container.put_archive(str(self.recipe.config.parent), packed.getvalue())
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(self.start, self.brokers))

    def adopt(self) -> None:
        """Read the addresses of existing containers: the containers of a resumed run keep their ports."""
        self._find()
        for broker, container in self._containers.items():
            self._addresses[broker] = Address(ports.LOOPBACK, _published(container, CLIENT_PORT), self.spec.security)
            if self.recipe.admin_port:
                self._admin_addresses[broker] = Address(ports.LOOPBACK, _published(container, self.recipe.admin_port))

    def start_again(self, brokers: Sequence[int]) -> None:
        """Find the containers of an interrupted run, and start these brokers."""
        self._find_all()
        for broker in brokers:
            self.start(broker)

    def start(self, broker: int) -> None:
        """Start a broker's container, without waiting until the broker is ready."""
        with engine.errors_as(f"broker {broker} cannot be started"):
            self._containers[broker].start()
        self._running.add(broker)

    def stop(self, broker: int) -> None:
        """SIGTERM the broker, the first process of its container, and wait for its end."""
        self._running.discard(broker)
        with engine.errors_as(f"broker {broker} cannot be shut down"):
            self._containers[broker].stop(timeout=SHUTDOWN_TIMEOUT_S)
            ended = self._attributes(broker)["State"]
        # The engine sends SIGKILL after that time, and does not say so.
        if ended.get("ExitCode") == KILLED:
            raise HarnessError(f"broker {broker} did not shut down within {SHUTDOWN_TIMEOUT_S} s")

    def kill(self, broker: int) -> None:
        """SIGKILL the broker, the first process of its container."""
        self._running.discard(broker)
        with engine.errors_as(f"broker {broker} cannot be killed"):
            self._containers[broker].kill()
            self._containers[broker].wait(timeout=STOP_TIMEOUT_S)
        self._reach.paused.discard(broker)

    def pause(self, broker: int) -> None:
        """Pause the container (the cgroup freezer)."""
        self._reach.paused.add(broker)
        with engine.errors_as(f"broker {broker} cannot be paused"):
            self._containers[broker].pause()

    def resume(self, broker: int) -> None:
        """Continue the container."""
        with engine.errors_as(f"broker {broker} cannot be resumed"):
            self._containers[broker].unpause()
        self._reach.paused.discard(broker)

    def cut(self, broker: int) -> None:
        """Disconnect the container from the run's network."""
        self._reach.cut.add(broker)
        with engine.errors_as(f"broker {broker} cannot be cut off"):
            self._network().disconnect(self._containers[broker])

    def heal(self, broker: int) -> None:
        """Reconnect the container, under the name of its service."""
        with engine.errors_as(f"broker {broker} cannot be reconnected"):
            self._network().connect(self._containers[broker], aliases=[service(broker)])
        self._reach.cut.discard(broker)

    def raise_if_died(self) -> None:
        """Raise `BootError` with the last log lines of a broker whose container ended by itself."""
        if self.now_s() - self._looked_s < LOOK_EVERY_S:
            return
        with engine.errors_as("containers cannot be inspected"):
            containers = self.client.api.containers(all=True, filters=engine.labelled(self.spec.run_id))
        self._looked_s = self.now_s()
        states = {container["Id"]: container["State"] for container in containers}
        for broker in sorted(self._running):
            container = self._containers[broker]
            state = states.get(container.id)
            if state is None:
                raise BootError(f"broker {broker} ended: another process must have removed its container")
            if state not in ("running", "paused"):
                with engine.errors_as(f"broker {broker} ended, and cannot be inspected"):
                    container.reload()
                    ended = container.attrs["State"]
                    log = container.logs(tail=LOG_LINES).decode(errors="replace")
                how = "out of memory" if ended["OOMKilled"] else f"exit code {ended['ExitCode']}"
                raise BootError(f"broker {broker} ended by itself ({how}); the end of its log:\n{tail(log)}")

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the files of the log until two copies are the same. Raises `HarnessError` if they keep changing."""
        folder = self.recipe.folder(topic, partition)
        missing = f"broker {broker} has no folder of {topic}-{partition}"

        def copy() -> dict[str, int]:
            with raised_as(HarnessError, missing, engine.MissingError), self._archive(broker, folder) as tar:
                return _extract(tar, destination, lambda path: self.recipe.is_log_file(path, partition))

        copy_when_still(copy, lambda *_: None, destination, f"{topic}-{partition} on broker {broker}")

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the existing checkpoints and ``meta.properties`` of the log directory."""
        destination.mkdir(parents=True, exist_ok=True)
        for path in self.recipe.checkpoints:
            with suppress(engine.MissingError), self._archive(broker, str(path)) as tar:
                _extract(tar, destination, lambda _: True)

    def close(self, *, keep: bool = False) -> None:
        """Store every broker's log. Unless kept, end the containers if the run can be resumed, else remove them."""
        containers = dict(self._containers)
        if not keep:
            self._containers.clear()
            self._running.clear()
        try:
            for broker, container in containers.items():
                path = self.spec.log_path(broker)
                with engine.errors_as(f"the log of broker {broker} cannot be read"), path.open("wb") as log:
                    log.writelines(container.logs(stream=True, follow=False))
        finally:
            if containers and not keep:
                release = engine.end if leftovers.is_resumable(self.spec.work_dir) else engine.remove
                release(self.spec.work_dir, self.spec.run_id)

    def _create(self) -> None:
        path = self.spec.work_dir / COMPOSE_FILE
        path.write_text((files("compose") / self.recipe.compose_file).read_text())
        try:
            commands.run(
                *self.compose,
                *("--project-name", f"compaction-harness-{self.spec.run_id.lower()}"),
                *("--file", str(path)),
                *("up", "--no-start"),
                *map(service, self.brokers),
                timeout_s=CREATE_TIMEOUT_S,
                variables={
                    **engine.OWN_MODULES,
                    "HARNESS_RUN_ID": self.spec.run_id,
                    "HARNESS_OWNER": engine.owner(),
                    "HARNESS_IMAGE": self.image,
                    **self.recipe.variables,
                    **{f"HARNESS_PORT_{broker}": str(at.port) for broker, at in self._addresses.items()},
                    **{f"HARNESS_ADMIN_PORT_{broker}": str(at.port) for broker, at in self._admin_addresses.items()},
                },
            )
        except HarnessError as error:
            has_no_subnet = any(words in str(error) for words in engine.SAYS_NO_SUBNET)
            raise HarnessError(engine.NO_SUBNET if has_no_subnet else str(error)) from error

    def _find(self) -> None:
        with engine.errors_as("the containers cannot be found"):
            containers = self.client.containers.list(all=True, filters=engine.labelled(self.spec.run_id))
        services = {container.labels["com.docker.compose.service"]: container for container in containers}
        self._containers = {b: services[service(b)] for b in self.brokers if service(b) in services}

    def _network(self) -> Network:
        (network,) = self.client.networks.list(filters=engine.labelled(self.spec.run_id))
        return network

    def _find_all(self) -> None:
        self._find()
        missing = [broker for broker in self.brokers if broker not in self._containers]
        if missing:
            raise HarnessError(f"the container of broker {', '.join(map(str, missing))} does not exist")

    def _inside(self, broker: int) -> list[str]:
        process_id = self._attributes(broker)["State"]["Pid"]
        # If the engine is in a virtual machine, or the harness in a container, the id is of another process here: rules
        # would be changed in the network of that process, such as this host's own.
        if str(self._containers[broker].id) not in _control_groups(process_id):
            raise HarnessError(
                f"process {process_id} of this host is not broker {broker}: the engine is in another machine, or this"
                " harness is in a container; faults of links need an engine on the same host"
            )
        return ["nsenter", "--target", str(process_id), "--net", "--"]

    def _inner_address(self, broker: int) -> str:
        for network in self._attributes(broker)["NetworkSettings"]["Networks"].values():
            return str(network["IPAddress"])
        raise HarnessError(f"broker {broker} is cut off from the run's network, and has no address there")

    def _attributes(self, broker: int) -> dict[str, Any]:
        with engine.errors_as(f"broker {broker} cannot be inspected"):
            self._containers[broker].reload()
        return self._containers[broker].attrs

    @contextmanager
    def _archive(self, broker: int, path: str) -> Iterator[tarfile.TarFile]:
        """Yield the archive of a path in the container. Raises `MissingError`, or `tarfile.ReadError`."""
        with TemporaryFile(dir=self.spec.work_dir) as packed:
            with engine.errors_as(f"{path} of broker {broker} cannot be copied"):
                chunks, _ = self._containers[broker].get_archive(path, chunk_size=CHUNK_BYTES)
                packed.writelines(chunks)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as tar:
                yield tar


def _control_groups(process_id: int) -> str:
    """Return the control groups of a process, whose names have its container's id; "" without such a process."""
    with suppress(OSError):
        return Path(f"/proc/{process_id}/cgroup").read_text()
    return ""


def _extract(tar: tarfile.TarFile, destination: Path, is_log_file: Callable[[PurePath], bool]) -> dict[str, int]:
    sizes = {}
    for member in tar:
        path = PurePath(member.name)
        content = tar.extractfile(member) if member.isreg() and is_log_file(path) else None
        if content is not None:
            sizes[path.name] = member.size
            with (destination / path.name).open("wb") as file:
                shutil.copyfileobj(content, file)
    return sizes


def _published(container: Container, port: int) -> int:
    (bound,) = container.attrs["HostConfig"]["PortBindings"][f"{port}/tcp"]
    return int(bound["HostPort"])
