"""Brokers as JVM processes of this machine: no container engine, and no root but for network namespaces.

They listen on the loopback address, or each on its own in a namespace where the run has a network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import leftovers, ports
from harness.errors import BootError, HarnessError
from harness.targets import kafka
from harness.wire import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.runtimes.network import Network

FORMAT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 12

LIVE_SUFFIXES = (".log", ".txnindex", ".snapshot")
SIDE_FILES = ("leader-epoch-checkpoint", "partition.metadata")
LOG_DIR_FILES = (
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "meta.properties",
)
COPY_ATTEMPTS = 20


@dataclass(frozen=True)
class LocalSpec:
    """What is needed to bring up brokers as local processes.

    ``settings`` are broker properties; ``logs_dir`` receives one ``<id>/server.log`` per broker. The
    brokers in ``controllers`` are the KRaft quorum as well. ``ports`` are one a broker for clients, then one
    a controller, or none to have free ones chosen. With a ``network``, brokers run in its namespaces.
    """

    run_id: str
    work_dir: Path
    logs_dir: Path
    java: Path
    classpath: str
    settings: Mapping[str, str]
    brokers: tuple[int, ...] = (1, 2, 3)
    controllers: tuple[int, ...] = (1,)
    ports: tuple[int, ...] = ()
    network: Network | None = None


class LocalRuntime:
    """Implements `harness.runtimes.base.Runtime` with processes of this machine."""

    def __init__(self, spec: LocalSpec) -> None:
        """Remember the parts; no broker runs yet."""
        self._spec = spec
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()
        self._cut: set[int] = set()
        # Given to every process by name: one that inherits the environment fails to start (EFAULT) while
        # another thread changes it, as pyspark does.
        self._environment = dict(os.environ)
        nodes = (*spec.brokers, *spec.controllers)
        numbers = spec.ports or ports.free_ports(len(nodes))
        hosts = [spec.network.address(node) if spec.network else ports.LOOPBACK for node in nodes]
        addresses = [Address(host, number) for host, number in zip(hosts, numbers, strict=True)]
        count = len(spec.brokers)
        self._addresses = dict(zip(spec.brokers, addresses[:count], strict=True))
        self._controllers = dict(zip(spec.controllers, addresses[count:], strict=True))

    @property
    def brokers(self) -> Sequence[int]:
        """Node ids, in order."""
        return self._spec.brokers

    def address(self, broker: int) -> Address:
        """Where clients reach this broker."""
        return self._addresses[broker]

    def start_cluster(self) -> None:
        """Format every broker's storage, all at once, and start them. Raises `BootError`."""
        cluster_id = kafka.random_cluster_id()
        for broker in self.brokers:
            self._write_properties(broker)
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: self._format(broker, cluster_id), self.brokers))
        for broker in self.brokers:
            self.start(broker)

    def start_again(self, brokers: Sequence[int]) -> None:
        """Configure every broker anew, as addresses may have changed, and start these on the data they left."""
        for broker in self.brokers:
            self._write_properties(broker)
        for broker in brokers:
            self.start(broker)

    def start(self, broker: int) -> None:
        """Start a broker on the data it has; it is not ready yet when this returns."""
        log_path = self._log_path(broker)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # It becomes java: the process id is the broker's own.
        prefix = self._spec.network.prefix(broker) if self._spec.network else []
        with log_path.open("ab") as log:
            self._processes[broker] = subprocess.Popen(
                [*prefix, *self._command(kafka.BROKER_CLASS, str(self._properties_path(broker)))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home(broker),
                env=self._environment,
                start_new_session=True,
            )

    def kill(self, broker: int) -> None:
        """SIGKILL the broker and reap it."""
        process = self._processes.pop(broker)
        process.kill()
        process.wait(timeout=STOP_TIMEOUT_S)

    def pause(self, broker: int) -> None:
        """SIGSTOP the broker."""
        self._paused.add(broker)
        self._processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT the broker."""
        self._processes[broker].send_signal(signal.SIGCONT)
        self._paused.discard(broker)

    def cut(self, broker: int) -> None:
        """Take the link of the broker's namespace down. Raises `HarnessError` where it has none."""
        network = self._network_of(broker)
        self._cut.add(broker)
        network.cut(broker)

    def heal(self, broker: int) -> None:
        """Take the link up again."""
        self._network_of(broker).heal(broker)
        self._cut.discard(broker)

    def is_up(self, broker: int) -> bool:
        """Whether the broker's process is meant to run, and to be reached."""
        return broker in self._processes and broker not in self._paused | self._cut

    def raise_if_died(self) -> None:
        """Raise `BootError` with the last log lines of a broker that ended by itself."""
        for broker, process in self._processes.items():
            code = process.poll()
            if code is not None:
                raise BootError(
                    f"broker {broker} ended by itself ({_ending(code)}); the end of {self._log_path(broker)}:\n"
                    + self.log_tail(broker)
                )

    def log_tail(self, broker: int) -> str:
        """Return the broker's last log lines, indented."""
        try:
            return _tail(self._log_path(broker).read_text(errors="replace"))
        except FileNotFoundError:
            return "  (no log)"

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Copy a partition's segments, transaction indexes, producer snapshots and epochs.

        A cleaner that swaps segments meanwhile makes files vanish under the copy: it is then made again,
        until one copy sees the same set of files before and after. Raises `HarnessError` when the files
        never hold still.
        """
        source = self._log_dir(broker) / f"{topic}-{partition}"
        if not source.is_dir():
            raise HarnessError(f"broker {broker} has no folder of {topic}-{partition}: {source}")
        for _ in range(COPY_ATTEMPTS):
            shutil.rmtree(destination, ignore_errors=True)
            destination.mkdir(parents=True)
            before = _live_files(source)
            with suppress(FileNotFoundError):
                for name in before:
                    shutil.copyfile(source / name, destination / name)
                if _live_files(source) == before:
                    return
        raise HarnessError(f"the files of {topic}-{partition} on broker {broker} never held still for a copy")

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Copy the log directory's checkpoints and ``meta.properties``; one not written yet is left out."""
        destination.mkdir(parents=True, exist_ok=True)
        for name in LOG_DIR_FILES:
            with suppress(FileNotFoundError):
                shutil.copyfile(self._log_dir(broker) / name, destination / name)

    def close(self) -> None:
        """End every broker with SIGKILL."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(timeout=STOP_TIMEOUT_S)
        self._processes.clear()

    def _network_of(self, broker: int) -> Network:
        if self._spec.network is None:
            raise HarnessError(
                f"broker {broker} cannot be cut off: brokers of this run share the host's loopback interface;"
                " it takes a network namespace for each"
            )
        return self._spec.network

    def _format(self, broker: int, cluster_id: str) -> None:
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(self._properties_path(broker)))
        done = subprocess.run(
            self._command(kafka.STORAGE_CLASS, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BootError(f"broker {broker}: its storage cannot be formatted:\n{_tail(done.stderr or done.stdout)}")

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        marker = leftovers.process_marker(self._spec.run_id)
        flags = (*kafka.JVM_FLAGS, *kafka.LOG_FLAGS, f"-Djava.io.tmpdir={self._spec.work_dir}", marker)
        return [str(self._spec.java), *flags, "-cp", self._spec.classpath, main_class, *arguments]

    def _write_properties(self, broker: int) -> None:
        properties = kafka.server_properties(
            node_id=broker,
            broker_address=self._addresses[broker],
            controllers=self._controllers,
            log_dir=str(self._log_dir(broker)),
            settings=self._spec.settings,
        )
        self._home(broker).mkdir(parents=True, exist_ok=True)
        self._properties_path(broker).write_text(kafka.format_properties(properties))

    def _home(self, broker: int) -> Path:
        return self._spec.work_dir / f"broker-{broker}"

    def _log_dir(self, broker: int) -> Path:
        return self._home(broker) / "data"

    def _properties_path(self, broker: int) -> Path:
        return self._home(broker) / "server.properties"

    def _log_path(self, broker: int) -> Path:
        return self._spec.logs_dir / str(broker) / "server.log"


def _live_files(folder: Path) -> dict[str, int]:
    """Names and sizes of what belongs to the log now; not what a cleaner is writing or has retired."""
    found = {}
    for path in folder.iterdir():
        if path.suffix in LIVE_SUFFIXES or path.name in SIDE_FILES:
            with suppress(FileNotFoundError):
                found[path.name] = path.stat().st_size
    return found


def _tail(log: str) -> str:
    """Return a log's last telling lines, indented: those with an error where there are any."""
    lines = log.splitlines()
    told = [line for line in lines if any(word in line for word in ("ERROR", "FATAL", "Exception"))]
    return "\n".join(f"  {line}" for line in (told or lines)[-LOG_TAIL_LINES:])


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
