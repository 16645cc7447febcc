"""Brokers as processes of this machine, without a container engine; only network namespaces need root.

They listen on the loopback address, or in separate namespaces if the run has a network.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BootError, HarnessError
from harness.host import disk, leftovers, network, ports
from harness.host.network import NamespaceNetwork
from harness.kafka_api.address import Address
from harness.protect.gate.build import Agent, build_agent
from harness.runtimes import faketime, namespaces
from harness.runtimes.base import ClusterSpec, Need, PreparedRuntime, RuntimeRequest, listeners, raise_if_unmet
from harness.runtimes.log_dir import LOG_DIR_FILES, copy_when_still, is_live, tail
from harness.runtimes.own import OwnProcesses
from harness.runtimes.power import SYNC_NOTES, LocalFiles
from harness.targets import kafka
from harness.targets.jars import jars_for
from harness.targets.own import SystemFile

PROPERTIES = "server.properties"
FORMAT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 60.0
WHY_UNAVAILABLE: dict[str, Callable[[], str | None]] = {
    Need.LINK: network.why_impossible,
    Need.FIREWALL: namespaces.why_no_firewall,
    Need.DELAY: namespaces.why_not_slow,
    Need.DISK: disk.why_impossible,
    Need.CLOCK: faketime.why_impossible,
    Need.SYNCS: lambda: None if sys.platform == "linux" else "syncs are recorded on Linux only",
    Need.FILES: lambda: None,
}

ON_LINKS = frozenset({Need.LINK, Need.FIREWALL, Need.DELAY})


def prepare(request: RuntimeRequest) -> PreparedRuntime:
    """Fetch the jars, and verify that the needs are available. Raises `UsageError`."""
    raise_if_unmet(request, WHY_UNAVAILABLE)
    own = request.target.own
    jars = None if own else jars_for(request.target, on_progress=request.on_progress)
    agent = build_agent(request.java, request.on_progress, SYNC_NOTES) if Need.SYNCS in request.needs else None

    def make(spec: ClusterSpec) -> LocalRuntime:
        links = network.create_network(spec.run_id, spec.brokers) if request.needs & ON_LINKS else None
        return LocalRuntime(spec, request.java.path, jars.classpath if jars else "", links, agent, own)

    return PreparedRuntime({"name": "local"}, make, jars)


@dataclass(eq=False)
class LocalRuntime:
    """Implements `harness.runtimes.base.Runtime` with processes of this machine.

    ``links``: the network in whose namespaces brokers run. ``agent``: the agent that records syncs. ``system``: of
    brokers that are not Kafka's jars.
    """

    spec: ClusterSpec
    java: Path
    classpath: str
    links: NamespaceNetwork | None = None
    agent: Agent | None = None
    system: SystemFile | None = None

    def __post_init__(self) -> None:
        self.brokers, links = self.spec.brokers, self.links
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._doomed: set[int] = set()
        self._reach = namespaces.Reach(self.spec.controllers, self._processes)
        faults = namespaces.NamespaceFaults(self.brokers, links.prefix, links.address, self._reach) if links else None
        self._files = LocalFiles(self, self._log_dir, self.agent)
        self.abilities = (self, faults, self._files)
        # Given to every process by name: one that inherits the environment fails to start (EFAULT) while
        # another thread changes it, as pyspark does.
        self._environment = dict(os.environ)
        self._addresses, self.controllers = listeners(self.spec, links.address if links else lambda _: ports.LOOPBACK)
        self.is_up, self.address = self._reach.is_up, self._addresses.__getitem__
        self.own: OwnProcesses | None = None
        if self.system is not None:
            self.own = OwnProcesses(self.system, self.spec, self.java, self._home, self._addresses)
        # If clients must log in, brokers have a separate listener for each other.
        inner = ports.free_ports(len(self.brokers)) if self.spec.security else []
        self._inner = {b: Address(self._addresses[b].host, port) for b, port in zip(self.brokers, inner, strict=False)}

    def start_cluster(self) -> None:
        """Format every broker's storage concurrently, and start the brokers. Raises `BootError`."""
        cluster_id = kafka.random_cluster_id()
        for broker in self.brokers:
            self._write_properties(broker)
            if Need.DISK in self.spec.needs:
                disk.mount(self._log_dir(broker))
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: self._format(broker, cluster_id), self.brokers))
        self._files.begin_notes(self.brokers)
        for broker in self.brokers:
            self.start(broker)

    def start_again(self, brokers: Sequence[int]) -> None:
        """Configure every broker again, as addresses may have changed, and start these brokers with their data."""
        for broker in self.brokers:
            self._write_properties(broker)
        for broker in brokers:
            self.start(broker)

    def start(self, broker: int) -> None:
        """Start a broker with its data, without waiting until it is ready."""
        # The prefix command executes java, so that its process id is the broker's.
        prefix = self.links.prefix(broker) if self.links else []
        # The agent for syncs is the first, as another agent loads classes of the broker, which it could not change.
        flags = (*self._files.flags(broker), *self.spec.jvm_flags)
        command = self._command(kafka.BROKER_CLASS, self._home(broker) / PROPERTIES, flags=flags)
        with self.spec.log_path(broker).open("ab") as log:
            if self.own is not None:
                command = self.own.command(broker, self.own.system.broker.command)
                self.own.log_starts[broker] = log.tell()
            self._processes[broker] = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home(broker),
                env=self._environment_of(broker),
                start_new_session=True,
            )

    def stop(self, broker: int) -> None:
        """SIGTERM the broker, or send the signal of the user's file, and reap it after its shutdown."""
        process = self._processes.pop(broker)
        _send(process, signal.Signals[self.own.system.broker.stop] if self.own else signal.SIGTERM)
        try:
            process.wait(timeout=SHUTDOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._processes[broker] = process
            raise HarnessError(f"broker {broker} did not shut down within {SHUTDOWN_TIMEOUT_S:.0f} s") from error

    def kill(self, broker: int) -> None:
        """SIGKILL the broker and reap it."""
        process = self._processes.pop(broker)
        _send(process, signal.SIGKILL)
        _reap(broker, process)
        self._reach.paused.discard(broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP the broker."""
        self._reach.paused.add(broker)
        _send(self._processes[broker], signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT the broker."""
        _send(self._processes[broker], signal.SIGCONT)
        self._reach.paused.discard(broker)

    def cut(self, broker: int) -> None:
        """Cut the link of the broker's namespace. Raises `HarnessError` without namespaces."""
        links = self._links_of(broker)
        self._reach.cut.add(broker)
        links.cut(broker)

    def heal(self, broker: int) -> None:
        """Restore the link of the broker's namespace."""
        self._links_of(broker).heal(broker)
        self._reach.cut.discard(broker)

    def fill_disk(self, broker: int) -> None:
        """Fill the file system of the broker's data; the broker may end by itself afterwards."""
        self._raise_without(Need.DISK)
        self._doomed.add(broker)
        disk.fill(self._log_dir(broker))

    def free_disk(self, broker: int) -> None:
        """Free the file system of the broker's data."""
        disk.free(self._log_dir(broker))
        self._doomed.discard(broker)

    def skew(self, broker: int, offset_s: int) -> None:
        """Put the clock of the broker's process forward. Raises `HarnessError` where that would have no effect."""
        self._raise_without(Need.CLOCK)
        process = self._processes.get(broker)
        if process is not None and not faketime.is_loaded(process.pid):
            raise HarnessError(f"broker {broker} has not loaded {faketime.find_library()}: its clock cannot be set")
        faketime.set_offset(self._home(broker) / "clock", offset_s)

    def raise_if_died(self) -> None:
        """Raise `BootError` with the last log lines of a broker that ended by itself."""
        for broker, process in list(self._processes.items()):
            code = process.poll()
            if code is not None and broker in self._doomed:
                del self._processes[broker]
            elif code is not None:
                log = self.spec.log_path(broker)
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                lines = tail(log.read_text(errors="replace"))
                raise BootError(f"broker {broker} ended by itself ({how}); the end of {log}:\n{lines}")

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy the files of the log until they are the same before and after. Raises `HarnessError` otherwise."""
        source = self._log_dir(broker) / f"{topic}-{partition}"
        if not source.is_dir():
            raise HarnessError(f"broker {broker} has no folder of {topic}-{partition}: {source}")

        def sizes() -> dict[str, int]:
            return {path.name: path.stat().st_size for path in source.iterdir() if is_live(path.name)}

        place = f"{topic}-{partition} on broker {broker}"
        copy_when_still(sizes, lambda name, copy: shutil.copyfile(source / name, copy), destination, place)

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the existing checkpoints and ``meta.properties`` of the log directory."""
        destination.mkdir(parents=True, exist_ok=True)
        for name in LOG_DIR_FILES:
            with suppress(FileNotFoundError):
                shutil.copyfile(self._log_dir(broker) / name, destination / name)

    def close(self, *, keep: bool = False) -> None:
        """SIGKILL every broker and remove their network, or leave them running."""
        if keep:
            return
        for process in self._processes.values():
            _send(process, signal.SIGKILL)
        for broker, process in self._processes.items():
            _reap(broker, process)
        self._processes.clear()
        if self.links is not None:
            network.remove_network(self.spec.run_id)

    def _environment_of(self, broker: int) -> dict[str, str]:
        clock, variables = self._home(broker) / "clock", self.own.environment(broker) if self.own else {}
        if Need.CLOCK in self.spec.needs:
            if not clock.exists():
                faketime.set_offset(clock, 0)
            variables |= faketime.environment(clock)
        return self._environment | variables

    def _raise_without(self, need: Need) -> None:
        if need not in self.spec.needs:
            raise HarnessError(f"the brokers of this run were started without {need}")

    def _links_of(self, broker: int) -> NamespaceNetwork:
        if self.links is None:
            raise HarnessError(
                f"broker {broker} cannot be cut off: brokers of this run share the host's loopback interface;"
                " a cut needs a network namespace for each broker"
            )
        return self.links

    def _format(self, broker: int, cluster_id: str) -> None:
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self._home(broker) / PROPERTIES)]
        if self.spec.security and self.spec.security.scram_user:
            # Other users of this host can read the arguments of a process, but not this file.
            file = self._home(broker) / "scram-user"
            file.write_text(f"--add-scram\n{self.spec.security.scram_user}\n")
            arguments.append(f"@{file}")
        command = self._command(kafka.STORAGE_CLASS, *arguments)
        if self.own is not None and not (command := self.own.command(broker, self.own.system.broker.prepare)):
            return
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment_of(broker),
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BootError(f"broker {broker}: its storage cannot be formatted:\n{tail(done.stderr or done.stdout)}")

    def _command(self, main_class: str, *arguments: str | Path, flags: Sequence[str] = ()) -> list[str]:
        marker = leftovers.process_marker(self.spec.run_id)
        every = (*kafka.JVM_FLAGS, *kafka.LOG_FLAGS, f"-Djava.io.tmpdir={self.spec.work_dir}", marker)
        return [str(self.java), *every, *flags, "-cp", self.classpath, main_class, *map(str, arguments)]

    def _write_properties(self, broker: int) -> None:
        if self.own is not None:
            self.own.configure(broker)
            return
        inner = [kafka.Listener(kafka.REPLICA, self._inner[broker])] if self.spec.security else []
        properties = kafka.server_properties(
            node_id=broker,
            listeners=[kafka.Listener(kafka.CLIENT, self._addresses[broker]), *inner],
            controllers={node: kafka.Listener(kafka.CONTROLLER, at) for node, at in self.controllers.items()},
            log_dir=str(self._log_dir(broker)),
            settings=self.spec.settings,
            security=self.spec.security,
        )
        self._home(broker).mkdir(parents=True, exist_ok=True)
        (self._home(broker) / PROPERTIES).write_text(properties)

    def _home(self, broker: int) -> Path:
        return self.spec.work_dir / f"broker-{broker}"

    def _log_dir(self, broker: int) -> Path:
        return self._home(broker) / "data"


def _reap(broker: int, process: subprocess.Popen[bytes]) -> None:
    """Reap a broker that was sent SIGKILL. Raises `HarnessError` where it survives, as one that waits for a disk."""
    try:
        process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"broker {broker} (process {process.pid}) survives SIGKILL") from error


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
