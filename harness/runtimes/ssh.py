"""Brokers as processes on other hosts, each on a separate host: installed, started and removed over SSH.

On a node all files of a run are in one directory, and every process has the run's marker, as on this host. Jars are
cached in the login's home for the next run. To cut a broker off, the node's firewall drops the packets of the cluster's
ports only, so that the harness can always heal it.
"""

import json
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paramiko.ssh_exception import SSHException

from harness.errors import BootError, HarnessError, UsageError, raised_as
from harness.host import java, node_runs
from harness.host.leftovers import NODES_FILE
from harness.host.node_runs import MAKE_PRIVATE, log_in, log_out, node_marker, on_each, remove, run_dir
from harness.host.nodes import Access, NodeConnection
from harness.json_codec import to_json
from harness.runtimes.base import ClusterSpec, Need, PreparedRuntime, RuntimeRequest, listeners, raise_if_unmet
from harness.runtimes.log_dir import LOG_DIR_FILES, copy_when_still, is_live, tail
from harness.runtimes.namespaces import Reach, at_random
from harness.targets import kafka
from harness.targets.jars import JarSet, jars_for

JAR_CACHE = ".cache/compaction-harness/jars"
LOOK_EVERY_S, LOOK_TIMEOUT_S = 1.0, 10.0
SHUTDOWN_TIMEOUT_S = 60
LOG_LINES = 500

IS_ALIVE = "is_alive() { [ -r /proc/$1/stat ] && ! grep -q ') Z ' /proc/$1/stat; };"
"""A zombie is not alive."""

WHY_UNAVAILABLE: dict[str, Callable[[], str | None]] = {
    Need.LINK: lambda: None,
    Need.FIREWALL: lambda: None,
    Need.DELAY: lambda: "other programs share the interface of a node",
    Need.DISK: lambda: "other programs share the disk of a node",
    Need.CLOCK: lambda: "other programs share the clock of a node",
    Need.SYNCS: lambda: "brokers on nodes run without the agent that records syncs; use --runtime local",
    Need.FILES: lambda: "the files of a node can only be copied; use --runtime local",
}
"""`prepare` verifies the nodes' firewalls."""


def prepare(request: RuntimeRequest) -> PreparedRuntime:
    """Verify the requirements on every node. Raises `UsageError` with the node and the problem."""
    access = request.access
    if access is None:
        raise UsageError("--runtime ssh needs hosts: give --nodes HOST,HOST,HOST or --nodes-file FILE")
    raise_if_unmet(request, WHY_UNAVAILABLE)
    jars = jars_for(request.target, on_progress=request.on_progress)
    connections = log_in(access)
    try:
        java_versions = dict(zip(map(str, access.nodes), on_each(connections, _look), strict=True))
        if request.needs:
            on_each(connections, node_runs.raise_if_no_firewall)
    finally:
        log_out(connections)
    facts = {"name": "ssh", "nodes": java_versions}
    return PreparedRuntime(facts, lambda spec: SshRuntime(spec, access, jars), jars, is_resumable=False)


@dataclass(eq=False)
class SshRuntime:
    """Implements `harness.runtimes.base.Runtime` with a host for each broker."""

    spec: ClusterSpec
    access: Access
    jars: JarSet

    def __post_init__(self) -> None:
        """Prepare, without logging in. Raises `UsageError` if hosts and brokers do not match."""
        self.brokers, nodes = self.spec.brokers, self.access.nodes
        if len(nodes) != len(self.brokers):
            raise UsageError(f"{len(self.brokers)} brokers need as many hosts, and {len(nodes)} are given")
        self._looked_s = time.monotonic()
        self._connections: dict[int, NodeConnection] = {}
        self._process_ids: dict[int, int] = {}
        self._reach = Reach(self.spec.controllers, self._process_ids)
        self.abilities = (self,)
        hosts = dict(zip(self.brokers, (node.host for node in nodes), strict=True))
        self._addresses, self._controllers = listeners(self.spec, hosts.__getitem__)
        self.is_up, self.address = self._reach.is_up, self._addresses.__getitem__

    def start_cluster(self) -> None:
        """Install jars and format storage on every node concurrently, and start the brokers. Raises `BootError`."""
        cluster_id = kafka.random_cluster_id()
        # After this, the nodes may have files of this run.
        (self.spec.work_dir / NODES_FILE).write_text(json.dumps(to_json(self.access)))
        self._connections = dict(zip(self.brokers, log_in(self.access), strict=True))

        with (
            raised_as(BootError, "brokers cannot be installed", HarnessError),
            ThreadPoolExecutor(len(self.brokers)) as pool,
        ):
            list(pool.map(lambda broker: self._install(broker, cluster_id), self.brokers))
        for broker in self.brokers:
            self.start(broker)

    def start_again(self, _brokers: Sequence[int]) -> None:
        """Raise `HarnessError`: the nodes' brokers end with the harness."""
        raise HarnessError("a run on other hosts cannot be resumed; start a new run")

    def start(self, broker: int) -> None:
        """Start a broker with its data, detached from the login, without waiting until it is ready."""
        command = self._command(broker, kafka.BROKER_CLASS, f"{self._home(broker)}/server.properties")
        log = shlex.quote(f"{self._home(broker)}/server.log")
        process_id = self._connections[broker].shell(f"setsid {command} >> {log} 2>&1 < /dev/null & echo $!")
        self._process_ids[broker] = int(process_id)

    def stop(self, broker: int) -> None:
        """SIGTERM the broker, and wait for its end."""
        process_id = self._process_ids.pop(broker)
        self._connections[broker].shell(
            f"{IS_ALIVE} kill -TERM {process_id};"
            f" for i in $(seq {SHUTDOWN_TIMEOUT_S * 5}); do is_alive {process_id} || exit 0; sleep 0.2; done;"
            f" echo did not shut down within {SHUTDOWN_TIMEOUT_S} s; exit 1",
            timeout_s=SHUTDOWN_TIMEOUT_S * 2,
        )

    def kill(self, broker: int) -> None:
        """SIGKILL the broker, and wait for its end."""
        process_id = self._process_ids.pop(broker)
        self._connections[broker].shell(
            f"{IS_ALIVE} kill -KILL {process_id}; while is_alive {process_id}; do sleep 0.01; done"
        )
        self._reach.paused.discard(broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP the broker."""
        self._reach.paused.add(broker)
        self._connections[broker].run("kill", "-STOP", str(self._process_ids[broker]))

    def resume(self, broker: int) -> None:
        """SIGCONT the broker."""
        self._connections[broker].run("kill", "-CONT", str(self._process_ids[broker]))
        self._reach.paused.discard(broker)

    def cut(self, broker: int) -> None:
        """Drop the packets of this cluster's ports in the node's firewall."""
        self._reach.cut.add(broker)
        self._drop(broker)

    def heal(self, broker: int) -> None:
        """Remove the node's rules."""
        node_runs.remove_rules(self._connections[broker], self.spec.run_id)
        self._reach.cut.discard(broker)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Drop the packets of each first broker to this cluster's ports in the firewall of the second's node."""
        self._reach.blocked.update(links)
        for source, receiver in links:
            self._drop(receiver, "-s", self._addresses[source].host)

    def lose(self, broker: int, fraction: float) -> None:
        """Drop random packets of this cluster's ports in the node's firewall."""
        self._drop(broker, *at_random(fraction))

    def clear_links(self) -> None:
        """Remove the rules of every node."""
        for connection in self._connections.values():
            node_runs.remove_rules(connection, self.spec.run_id)
        self._reach.blocked.clear()

    def raise_if_died(self) -> None:
        """Raise `BootError` with the last log lines of a broker that ended by itself."""
        if time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return
        for broker, process_id in self._process_ids.items():
            last_lines = self._connections[broker].shell(
                f"{IS_ALIVE} is_alive {process_id} || echo ended", timeout_s=LOOK_TIMEOUT_S
            )
            # A login shell may print warnings.
            if "ended" in last_lines.split():
                log = self._connections[broker].run("tail", "-n", str(LOG_LINES), f"{self._home(broker)}/server.log")
                where = f"broker {broker} on {self._connections[broker].node}"
                raise BootError(f"{where} ended by itself; the end of its log:\n{tail(log)}")
        self._looked_s = time.monotonic()

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the files of the log until they are the same before and after. Raises `HarnessError` otherwise."""
        source = f"{self._home(broker)}/data/{topic}-{partition}"
        files, place = self._connections[broker].files, f"{topic}-{partition} on broker {broker}"

        def sizes() -> dict[str, int]:
            try:
                entries = files.listdir_attr(source)
            except FileNotFoundError as error:
                raise HarnessError(f"broker {broker} has no folder {source}") from error
            regular = (entry for entry in entries if is_live(entry.filename) and stat.S_ISREG(entry.st_mode or 0))
            return {entry.filename: entry.st_size or 0 for entry in regular}

        copy_when_still(sizes, lambda name, copy: files.get(f"{source}/{name}", str(copy)), destination, place)

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the existing checkpoints and ``meta.properties`` of the log directory."""
        destination.mkdir(parents=True, exist_ok=True)
        existing = set(self._connections[broker].files.listdir(f"{self._home(broker)}/data"))
        for name in sorted(existing & set(LOG_DIR_FILES)):
            self._connections[broker].files.get(f"{self._home(broker)}/data/{name}", str(destination / name))

    def close(self, *, keep: bool = False) -> None:
        """Store every broker's log, and unless kept end every broker and remove the run from its nodes."""
        try:
            for broker, connection in self._connections.items():
                with suppress(FileNotFoundError):
                    connection.files.get(f"{self._home(broker)}/server.log", str(self.spec.log_path(broker)))
        except (OSError, EOFError, SSHException) as error:
            raise HarnessError(f"the log of broker {broker} cannot be copied: {error}") from error
        finally:
            log_out(list(self._connections.values()))
            used = bool(self._connections)
            self._connections.clear()
            self._process_ids.clear()
            if used and not keep:
                remove(self.spec.work_dir, self.spec.run_id)

    def _install(self, broker: int, cluster_id: str) -> None:
        """Copy the jars that the node's cache does not have, by name and size; configure the broker; format storage."""
        connection, config = self._connections[broker], f"{self._home(broker)}/server.properties"
        cache = f"{JAR_CACHE}/{self.jars.directory.name}"
        connection.shell(f"{MAKE_PRIVATE} mkdir -p {cache} {self._home(broker)}")
        sizes = {entry.filename: entry.st_size for entry in connection.files.listdir_attr(cache)}
        for jar in self.jars.paths:
            if sizes.get(jar.name) != jar.stat().st_size:
                connection.files.put(str(jar), f"{cache}/{jar.name}.new")
                connection.files.posix_rename(f"{cache}/{jar.name}.new", f"{cache}/{jar.name}")
        properties = kafka.server_properties(
            node_id=broker,
            listeners=[kafka.Listener(kafka.CLIENT, self._addresses[broker])],
            controllers={node: kafka.Listener(kafka.CONTROLLER, at) for node, at in self._controllers.items()},
            log_dir=f"{self._home(broker)}/data",
            settings=self.spec.settings,
        )
        with connection.files.open(config, "w") as file:
            file.write(properties)
        arguments = ("format", "--cluster-id", cluster_id, "--config", config)
        connection.shell(self._command(broker, kafka.STORAGE_CLASS, *arguments))

    def _command(self, broker: int, main_class: str, *arguments: str) -> str:
        marker = node_marker(self.spec.run_id)
        flags = (*kafka.JVM_FLAGS, *kafka.LOG_FLAGS, f"-Djava.io.tmpdir={self._home(broker)}", marker)
        cache = f"{JAR_CACHE}/{self.jars.directory.name}"
        classpath = ":".join(f"{cache}/{jar.name}" for jar in self.jars.paths)
        return shlex.join(["java", *flags, "-cp", classpath, main_class, *arguments])

    def _drop(self, broker: int, *match: str) -> None:
        ports = sorted({at.port for at in (*self._addresses.values(), *self._controllers.values())})
        node_runs.drop_packets(self._connections[broker], self.spec.run_id, ports, match)

    def _home(self, broker: int) -> str:
        return f"{run_dir(self.spec.run_id)}/broker-{broker}"


def _look(connection: NodeConnection) -> str:
    try:
        version = java.parse_version(connection.run("java", "-version"))
    except HarnessError as error:
        raise UsageError(f"{error}; {java.REMEDY}") from error
    if version is None or version[0] < java.MIN_VERSION:
        text = version[1] if version else "of an unknown version"
        raise UsageError(f"{connection.node} has Java {text}; {java.REMEDY}")
    return version[1]
